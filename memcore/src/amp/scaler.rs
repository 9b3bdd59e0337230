//! The loss scaler. float16 has a small range, so the loss is multiplied by a scale and the gradients are divided by
//! it.

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

/// Settings of [`GradScaler`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerOptions {
    /// Initial scale.
    pub init_scale: f64,
    /// Factor after `growth_interval` steps without an overflow.
    pub growth_factor: f64,
    /// Factor after an overflow.
    pub backoff_factor: f64,
    /// Steps in a row without an overflow after which the scale grows.
    pub growth_interval: i32,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        Self { init_scale: 65_536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 2000 }
    }
}

/// Scales a loss, unscales the gradients, skips a step whose gradients overflowed, and adapts the scale.
#[derive(Default)]
pub struct GradScaler {
    options: GradScalerOptions,
    state: Option<State>,
    /// Whether an overflow was found since the last update: one f32 scalar for each device that has gradients.
    found_inf: Option<Vec<Array>>,
}

struct State {
    scale: Array,
    /// i32 scalar: steps in a row without an overflow.
    growth_tracker: Array,
}

impl GradScaler {
    /// Creates a scaler. The first loss puts the scale on its device.
    pub fn new(options: GradScalerOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Returns the scale (f32) and the number of steps in a row without an overflow (i32), under PyTorch's names;
    /// `None` before the first loss.
    pub fn state(&self) -> Option<[(&'static str, Array); 2]> {
        let State { scale, growth_tracker } = self.state.as_ref()?;
        Some([("scale", scale.clone()), ("growth_tracker", growth_tracker.clone())])
    }

    /// Puts scale and tracker on the device as the first loss would, for the caller to overwrite.
    pub fn make_state(&mut self, device: &Device) -> Result<[(&'static str, Array); 2]> {
        let State { scale, growth_tracker } = self.state.insert(State::new(device, &self.options)?);
        Ok([("scale", scale.clone()), ("growth_tracker", growth_tracker.clone())])
    }

    /// Returns `loss · scale`.
    pub fn scale(&mut self, loss: &Tensor) -> Result<Tensor> {
        let state = match &mut self.state {
            Some(state) => state,
            none => none.insert(State::new(loss.device(), &self.options)?),
        };
        ops::mul(loss, &Tensor::from_array(state.scale.clone()))
    }

    /// Unscales the gradients of the optimizer's parameters and notes whether one of them overflowed. Does nothing if
    /// that was done since the last update. Call it before clipping gradients.
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

    /// Unscales the gradients and takes a step unless one of them overflowed. Returns whether the step was taken. A
    /// device that computes nothing always takes it.
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

    /// Like [`GradScaler::unscale`], for an optimizer whose PyTorch kernel unscales by itself. The optimizer is given
    /// the overflow flag, and the scale unless the gradients are already unscaled; both live as long as its step. The
    /// search for overflows comes first and has a scale of its own (1 in PyTorch, the loss's here).
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

    /// Adapts the scale to the result of the last step.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no step came before; errors of the device.
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

/// Values that an optimizer is given for its step.
struct Given {
    // Fields are freed in this order.
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

    /// Returns `1/scale`. PyTorch computes it in float64, through two temporaries. A scale is a power of two, so its
    /// reciprocal is exact either way.
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

/// Indices of the gradients on each device. Without gradients: one empty list, for the scale's own device.
fn groups(gradients: &[Array]) -> Vec<Vec<usize>> {
    if gradients.is_empty() { vec![Vec::new()] } else { by_device(gradients) }
}

/// Copies `array` to `device`, also if it is already there.
fn copied_to(array: &Array, device: &Device) -> Result<Array> {
    let here = array.device().is_same(device);
    context::within("to>_to_copy", || if here { array.copied() } else { array.to_device(device) })
}

/// Sums the flags of all devices on one of them, into the first one's flag.
fn together(found: &[Array], device: &Device) -> Result<Array> {
    let moved = found.iter().map(|found| context::within("to>_to_copy", || found.to_device(device)));
    let mut moved = moved.collect::<Result<Vec<Array>>>()?.into_iter();
    let first = moved.next().ok_or_else(|| Error::invalid("update", "no gradient was looked at"))?;
    moved.try_for_each(|other| first.add_(&other))?;
    Ok(first)
}

/// Launches once for each type among the gradients: the kernel takes gradients of one type.
fn unscale(gradients: &[Array], inverse: &Array, found: &Array) -> Result<()> {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        let of_type = gradients.iter().filter(|gradient| gradient.dtype() == dtype);
        let grads: Arc<[Operand]> =
            of_type.map(|gradient| Ok(gradient.as_row_major()?.operand())).collect::<Result<_>>()?;
        if !grads.is_empty() {
            let (inv_scale, found_inf) = (inverse.operand(), found.operand());
            found.device().launch(Unscale { grads, inv_scale, found_inf })?;
        }
    }
    Ok(())
}
