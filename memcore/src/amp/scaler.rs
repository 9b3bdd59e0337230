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
use crate::optim::{Optimizer, by_device};

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
    /// Whether an overflow was found since the last update: scalar f32, one on each device that has gradients.
    found_inf: Option<Vec<Array>>,
}

struct State {
    scale: Array,
    /// Scalar i32: clean steps in a row.
    growth_tracker: Array,
}

impl GradScaler {
    /// With these settings. The scale is put on the device by the first loss.
    pub fn new(options: GradScalerOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The scale (f32) and the number of clean steps in a row (i32), under PyTorch's names; `None` before the first loss.
    pub fn state(&self) -> Option<[(&'static str, Array); 2]> {
        let State { scale, growth_tracker } = self.state.as_ref()?;
        Some([("scale", scale.clone()), ("growth_tracker", growth_tracker.clone())])
    }

    /// Puts both on the device as the first loss would, for the caller to overwrite.
    pub fn make_state(&mut self, device: &Device) -> Result<[(&'static str, Array); 2]> {
        let State { scale, growth_tracker } = self.state.insert(State::new(device, &self.options)?);
        Ok([("scale", scale.clone()), ("growth_tracker", growth_tracker.clone())])
    }

    /// `loss · scale`.
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
        let inverse = self.scaled()?.inverse()?;
        self.unscale_by(inverse, optimizer)
    }

    fn scaled(&self) -> Result<&State> {
        self.state.as_ref().ok_or_else(|| Error::invalid("unscale", "no loss has been scaled yet"))
    }

    fn unscale_by(&mut self, inverse: Array, optimizer: &dyn Optimizer) -> Result<()> {
        let none_yet = context::within("full", || Array::zeros(inverse.device(), &[], DType::F32))?;
        let gradients: Vec<Array> = optimizer.parameters().iter().filter_map(crate::nn::Parameter::grad).collect();
        let (mut found, mut inverses, mut unscaled) = (Vec::new(), Vec::new(), Ok(()));
        for of_device in groups(&gradients) {
            let here: Vec<Array> = of_device.iter().map(|i| gradients[*i].clone()).collect();
            let device = here.first().map_or(inverse.device(), Array::device);
            let found_here = copied_to(&none_yet, device)?.with_category(Category::OptimizerState);
            let inverse_here = copied_to(&inverse, device)?;
            let check = || unscale(&here, &inverse_here, &found_here);
            let here = context::within("_amp_foreach_non_finite_check_and_unscale_", check);
            unscaled = unscaled.and(here);
            found.push(found_here);
            inverses.push(inverse_here);
        }
        drop((inverses, inverse, none_yet));
        self.found_inf = Some(found);
        unscaled
    }

    /// Takes the scale off the gradients, and a step unless one of them overflowed; returns whether it was taken. A device that computes
    /// nothing always takes it.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        let _given = if optimizer.takes_loss_scale() && self.scaled()?.scale.device().profile().torch_temporaries {
            Some(self.give(optimizer)?)
        } else {
            self.unscale(optimizer)?;
            None
        };
        for found in self.found_inf.iter().flatten().filter(|found| found.device().computes()) {
            if found.to_f64()?.iter().any(|&found| found != 0.0) {
                return Ok(false);
            }
        }
        optimizer.step()?;
        Ok(true)
    }

    /// As [`GradScaler::unscale`], for an optimizer whose kernel in PyTorch does that by itself: it is given the scale, unless that is off the gradients
    /// already, and whether one overflowed; they live as long as its step. The gradients are looked through with a scale of their own first (in
    /// PyTorch 1, here the loss's).
    fn give(&mut self, optimizer: &dyn Optimizer) -> Result<Given> {
        let scaled = self.found_inf.is_none();
        if scaled {
            let inverse = context::within("full", || self.scaled()?.scale.unary(UnaryOp::Reciprocal))?;
            self.unscale_by(inverse, optimizer)?;
        }
        let scale = &self.scaled()?.scale;
        let found = self.found_inf.as_deref().unwrap_or_default();
        let found_inf = together(found, scale.device())?;
        let found_inf = context::within("add", || found_inf.affine(1.0, 0.0))?;
        let scale = if scaled { Some(context::within("mul", || scale.affine(1.0, 0.0))?) } else { None };
        Ok(Given { _scale: scale, _found_inf: found_inf })
    }

    /// Adapts the scale to what the last step found.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a step; those of the device.
    pub fn update(&mut self) -> Result<()> {
        let (Some(state), Some(found_inf)) = (&self.state, self.found_inf.take()) else {
            return Err(Error::invalid("update", "no step was taken since the last update"));
        };
        let found_inf = together(&found_inf, state.scale.device())?;
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

/// What an optimizer is given for its step.
struct Given {
    // Freed in this order.
    _scale: Option<Array>,
    _found_inf: Array,
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

/// The numbers of the gradients of each device; without gradients one empty list, for the scale's own device.
fn groups(gradients: &[Array]) -> Vec<Vec<usize>> {
    if gradients.is_empty() { vec![Vec::new()] } else { by_device(gradients) }
}

/// A copy there, also of what is there already.
fn copied_to(array: &Array, device: &Device) -> Result<Array> {
    let here = array.device().is_same(device);
    context::within("to>_to_copy", || if here { array.copied() } else { array.to_device(device) })
}

/// What the devices found, added up on one of them, into the first one's flag.
fn together(found: &[Array], device: &Device) -> Result<Array> {
    let moved = found.iter().map(|found| context::within("to>_to_copy", || found.to_device(device)));
    let mut moved = moved.collect::<Result<Vec<Array>>>()?.into_iter();
    let first = moved.next().ok_or_else(|| Error::invalid("update", "no gradient was looked at"))?;
    moved.try_for_each(|other| first.add_(&other))?;
    Ok(first)
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
