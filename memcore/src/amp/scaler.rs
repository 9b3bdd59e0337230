//! The loss scaler: float16's range is short, so the loss is scaled up and the gradients down again.

use std::sync::Arc;

use crate::array::Array;
use crate::autograd::Tensor;
use crate::backend::Operand;
use crate::backend::kernel::{UnaryOp, Unscale, UpdateScale};
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops;
use crate::optim::Optimizer;

/// Settings of [`GradScaler`], named as PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerOptions {
    /// The first scale.
    pub init_scale: f64,
    /// Factor after enough clean steps.
    pub growth_factor: f64,
    /// Factor after an overflow.
    pub backoff_factor: f64,
    /// Clean steps until the scale grows.
    pub growth_interval: i32,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        Self { init_scale: 65_536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 2000 }
    }
}

/// Scales a loss, takes the scale off the gradients, skips a step whose gradients overflowed, and adapts the scale.
#[derive(Default)]
pub struct GradScaler {
    options: GradScalerOptions,
    state: Option<State>,
    /// Whether an overflow was found since the last update: scalar f32.
    found_inf: Option<Array>,
}

struct State {
    /// Scalar f32.
    scale: Array,
    /// Scalar i32: clean steps in a row.
    growth_tracker: Array,
}

impl GradScaler {
    /// With these settings. The scale is put on the device by the first loss.
    pub fn new(options: GradScalerOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The scale, where there are values; before the first loss the first scale.
    ///
    /// # Errors
    /// Those of the device.
    pub fn scale_value(&self) -> Result<Option<f64>> {
        match &self.state {
            None => Ok(Some(self.options.init_scale)),
            Some(state) if state.scale.device().computes() => Ok(state.scale.to_f64()?.first().copied()),
            Some(_) => Ok(None),
        }
    }

    /// The scale (f32) and the number of clean steps in a row (i32), under PyTorch's names; `None` before the first loss.
    pub fn state(&self) -> Option<[(&'static str, Array); 2]> {
        let State { scale, growth_tracker } = self.state.as_ref()?;
        Some([("scale", scale.clone()), ("growth_tracker", growth_tracker.clone())])
    }

    /// Puts both on the device as the first loss would, for the caller to overwrite.
    ///
    /// # Errors
    /// Those of the device.
    pub fn make_state(&mut self, device: &Device) -> Result<[(&'static str, Array); 2]> {
        let State { scale, growth_tracker } = self.state.insert(State::new(device, &self.options)?);
        Ok([("scale", scale.clone()), ("growth_tracker", growth_tracker.clone())])
    }

    /// `loss · scale`.
    ///
    /// # Errors
    /// Those of the device.
    pub fn scale(&mut self, loss: &Tensor) -> Result<Tensor> {
        let state = match &mut self.state {
            Some(state) => state,
            none => none.insert(State::new(loss.device(), &self.options)?),
        };
        ops::mul(loss, &Tensor::from_array(state.scale.clone()))
    }

    /// Takes the scale off the gradients of the optimizer's parameters and notes whether one of them overflowed; nothing when that was done
    /// since the last update. To be called before gradients are clipped.
    ///
    /// # Errors
    /// [`Error::Invalid`] before the first loss; those of the device.
    pub fn unscale(&mut self, optimizer: &dyn Optimizer) -> Result<()> {
        if self.found_inf.is_some() {
            return Ok(());
        }
        let Some(state) = &self.state else { return Err(Error::invalid("unscale", "no loss has been scaled yet")) };
        let inverse = state.inverse()?;
        let none_yet = context::within("full", || Array::zeros(inverse.device(), &[], DType::F32))?;
        let found = unscaled(optimizer, &inverse, &none_yet)?;
        drop(inverse);
        drop(none_yet);
        self.found_inf = Some(found);
        Ok(())
    }

    /// Takes the scale off the gradients, and a step unless one of them overflowed; returns whether it was taken. A device that computes
    /// nothing always takes it.
    ///
    /// # Errors
    /// As [`GradScaler::unscale`] and [`Optimizer::step`].
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        let _given = if optimizer.takes_scale() { Some(self.given_to(optimizer)?) } else { None };
        self.unscale(optimizer)?;
        if let Some(found) = self.found_inf.as_ref().filter(|found| found.device().computes())
            && found.to_f64()?.iter().any(|&found| found != 0.0)
        {
            return Ok(false);
        }
        optimizer.step()?;
        Ok(true)
    }

    /// What PyTorch gives a fused optimizer, whose kernel takes the scale off by itself: whether a gradient overflowed, and the scale. It looks for
    /// overflows with a scale of 1; here the gradients are brought to theirs in passing.
    fn given_to(&mut self, optimizer: &dyn Optimizer) -> Result<(Array, Option<Array>)> {
        let Some(state) = &self.state else { return Err(Error::invalid("step", "no loss has been scaled yet")) };
        let device = state.scale.device().clone();
        let scalar = |op| context::within(op, || Array::empty(&device, &[], DType::F32));
        let mut scale = None;
        let found = match &self.found_inf {
            Some(found) => found.clone(),
            None => {
                let inverse = scalar("full")?;
                let none_yet = context::within("full", || Array::zeros(&device, &[], DType::F32))?;
                inverse.copy_(&state.scale)?;
                inverse.unary_(UnaryOp::Reciprocal)?;
                let found = unscaled(optimizer, &inverse, &none_yet)?;
                scale = Some(());
                self.found_inf = Some(found.clone());
                found
            }
        };
        let sum = scalar("add")?;
        sum.copy_(&found)?;
        let scale = scale.map(|()| scalar("mul")).transpose()?;
        Ok((sum, scale))
    }

    /// Adapts the scale to what the last step found.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a step; those of the device.
    pub fn update(&mut self) -> Result<()> {
        let (Some(state), Some(found_inf)) = (&self.state, self.found_inf.take()) else {
            return Err(Error::invalid("update", "no step was taken since the last update"));
        };
        state.scale.device().launch(UpdateScale {
            growth_factor: self.options.growth_factor,
            backoff_factor: self.options.backoff_factor,
            growth_interval: self.options.growth_interval,
            scale: state.scale.operand(),
            growth_tracker: state.growth_tracker.operand(),
            found_inf: found_inf.operand(),
        })
    }
}

impl State {
    fn new(device: &Device, options: &GradScalerOptions) -> Result<Self> {
        let _op = context::op("full");
        let scale = Array::full(device, &[], DType::F32, options.init_scale)?.with_category(Category::OptimizerState);
        let growth_tracker = Array::zeros(device, &[], DType::I32)?.with_category(Category::OptimizerState);
        Ok(Self { scale, growth_tracker })
    }

    /// `1/scale`. PyTorch computes it in float64, through two temporaries; a scale is a power of two, whose reciprocal is exact anyway.
    fn inverse(&self) -> Result<Array> {
        let device = self.scale.device();
        let double = if device.profile().torch_temporaries {
            let f64 = || Array::empty(device, &[], DType::F64);
            let double = context::within("to>_to_copy", f64)?;
            let reciprocal = context::within("reciprocal", f64)?;
            drop(double);
            Some(reciprocal)
        } else {
            None
        };
        let inverse = context::within("to>_to_copy", || self.scale.unary(UnaryOp::Reciprocal))?;
        drop(double);
        Ok(inverse)
    }
}

/// Multiplies the gradients by `inverse`, and tells in a copy of `none_yet` whether one was not finite; PyTorch copies both to each device.
fn unscaled(optimizer: &dyn Optimizer, inverse: &Array, none_yet: &Array) -> Result<Array> {
    let copied = |array: &Array| context::within("to>_to_copy", || array.copied());
    let found = copied(none_yet)?.with_category(Category::OptimizerState);
    let inverse_here = copied(inverse)?;
    let gradients: Vec<Array> = optimizer.parameters().iter().filter_map(crate::nn::Parameter::grad).collect();
    let check = || unscale(&gradients, &inverse_here, &found);
    context::within("_amp_foreach_non_finite_check_and_unscale_", check)?;
    Ok(found)
}

/// One launch for each type among the gradients, as the kernel wants them.
fn unscale(gradients: &[Array], inverse: &Array, found: &Array) -> Result<()> {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        let grads: Arc<[Operand]> = gradients.iter().filter(|g| g.dtype() == dtype).map(Array::operand).collect();
        if !grads.is_empty() {
            let (inv_scale, found_inf) = (inverse.operand(), found.operand());
            found.device().launch(Unscale { grads, inv_scale, found_inf })?;
        }
    }
    Ok(())
}
