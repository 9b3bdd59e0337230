//! Root-mean-square norms, written out as the library does.

use memcore::memory::ScopeId;
use memcore::nn::{Fill, Init, Module, Parameter};
use memcore::{DType, Result, Tensor, context, ops};

/// Variant of the norm, by family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `LlamaRMSNorm`: normalised in f32, converted, then multiplied by the weight.
    Weight,
    /// `T5LayerNorm`: the root in f32, the product with it in the resulting type, converted only to a narrow weight's type.
    WideRoot,
    /// `GemmaRMSNorm`: normalised in f32, multiplied by 1 + weight in f32, then converted.
    OnePlusWeight,
    /// Liger's kernel, whatever it is instead of.
    Liger,
}

/// A norm of the last dimension.
pub(super) struct Norm {
    scope: ScopeId,
    weight: Parameter,
    eps: f64,
    form: Form,
}

impl Norm {
    /// Makes a norm of `width` elements.
    pub(crate) fn new(init: &Init, width: usize, eps: f64, form: Form) -> Result<Self> {
        let first = if form == Form::OnePlusWeight { 0.0 } else { 1.0 };
        let weight = init.parameter("weight", &[width], Fill::Constant(first))?;
        Ok(Self { scope: init.scope(), weight, eps, form })
    }

    fn times_weight(&self, x: &Tensor) -> Result<Tensor> {
        let mut hidden = ops::cast(x, DType::F32)?;
        let variance = {
            let squares = ops::pow(&hidden, 2.0)?;
            ops::mean_axes(&squares, &[x.rank() - 1], true)?
        };
        hidden = {
            let root = {
                let shifted = ops::add_scalar(&variance, self.eps)?;
                ops::rsqrt(&shifted)?
            };
            ops::mul(&hidden, &root)?
        };
        let narrow = ops::cast(&hidden, x.dtype())?;
        let y = ops::mul(self.weight.tensor(), &narrow)?;
        drop((narrow, hidden, variance));
        Ok(y)
    }

    fn times_wide_root(&self, x: &Tensor) -> Result<Tensor> {
        let variance = {
            let squares = {
                let wide = ops::cast(x, DType::F32)?;
                ops::pow(&wide, 2.0)?
            };
            ops::mean_axes(&squares, &[x.rank() - 1], true)?
        };
        let mut hidden = {
            let root = {
                let shifted = ops::add_scalar(&variance, self.eps)?;
                ops::rsqrt(&shifted)?
            };
            ops::mul(x, &root)?
        };
        let weight = self.weight.tensor();
        if weight.dtype().is_half() {
            hidden = ops::cast(&hidden, weight.dtype())?;
        }
        ops::mul(weight, &hidden)
    }

    fn times_one_plus_weight(&self, x: &Tensor) -> Result<Tensor> {
        let mut output = {
            let wide = ops::cast(x, DType::F32)?;
            let root = {
                let shifted = {
                    let variance = {
                        let squares = ops::pow(&wide, 2.0)?;
                        ops::mean_axes(&squares, &[x.rank() - 1], true)?
                    };
                    ops::add_scalar(&variance, self.eps)?
                };
                ops::rsqrt(&shifted)?
            };
            ops::mul(&wide, &root)?
        };
        output = {
            let factor = {
                let weight = ops::cast(self.weight.tensor(), DType::F32)?;
                ops::add_scalar(&weight, 1.0)?
            };
            ops::mul(&output, &factor)?
        };
        ops::cast(&output, x.dtype())
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        match self.form {
            Form::Weight => self.times_weight(x),
            Form::WideRoot => self.times_wide_root(x),
            Form::OnePlusWeight => self.times_one_plus_weight(x),
            Form::Liger => ops::liger_rms_norm(x, self.weight.tensor()),
        }
    }
}
