//! Backward and the optimizer's step: the loss scaled where small gradients would vanish, gradients clipped where asked for.

use lab_base::error::Result;
use memcore::amp::GradScaler;
use memcore::nn::Parameter;
use memcore::optim::{Optimizer, clip_grad_norm};
use memcore::{Array, Tensor};

use super::schedule::Phase;
use super::settings::RunSettings;

/// What turns a loss into other parameters. Dropped in the order of a script's variables: the optimizer, then the scaler.
pub struct Update {
    /// `None` for a program that takes no step.
    pub optimizer: Option<Box<dyn Optimizer>>,
    /// Only under autocast to float16.
    pub scaler: Option<GradScaler>,
    clip_grad_norm: Option<f64>,
    set_to_none: bool,
}

impl Update {
    /// Over `parameters`; without an optimizer where the schedule has nothing for one to do.
    ///
    /// # Errors
    /// A setting that the optimizer does not have; those of the device.
    pub fn new(settings: &RunSettings, parameters: &[Parameter]) -> Result<Self> {
        let steps = [Phase::ZeroGrad, Phase::Step].iter().any(|phase| settings.schedule.names(*phase));
        let optimizer = steps.then(|| settings.optimizer.build(parameters.to_vec())).transpose()?;
        Ok(Self::with(settings, optimizer))
    }

    /// With an optimizer that was made elsewhere.
    pub fn with(settings: &RunSettings, optimizer: Option<Box<dyn Optimizer>>) -> Self {
        Self {
            optimizer,
            scaler: settings.precision.scales_loss().then(GradScaler::default),
            clip_grad_norm: settings.clip_grad_norm,
            set_to_none: settings.set_to_none,
        }
    }

    /// What holds the optimizer's state; `None` for a program that takes no step.
    pub fn optimizer(&self) -> Option<&dyn Optimizer> {
        self.optimizer.as_deref()
    }

    /// The same, to give it another state.
    pub(crate) fn optimizer_mut(&mut self) -> Option<&mut (dyn Optimizer + 'static)> {
        self.optimizer.as_deref_mut()
    }

    /// What scales the loss, where something does.
    pub(crate) fn scaler(&self) -> Option<&GradScaler> {
        self.scaler.as_ref()
    }

    /// The same, to give it another scale.
    pub(crate) fn scaler_mut(&mut self) -> Option<&mut GradScaler> {
        self.scaler.as_mut()
    }

    /// Gradients are freed or zeroed.
    pub(crate) fn zero_grad(&self) -> Result<()> {
        self.optimizer.as_ref().map_or(Ok(()), |optimizer| Ok(optimizer.zero_grad(self.set_to_none)?))
    }

    /// Gradients of a loss.
    pub fn backward(&mut self, loss: &Tensor) -> Result<()> {
        self.backward_retaining(loss, false)
    }

    /// The same with `retain_graph`.
    pub fn backward_retaining(&mut self, loss: &Tensor, retain_graph: bool) -> Result<()> {
        match &mut self.scaler {
            None => loss.backward(retain_graph)?,
            // The scaled loss is not a variable of the program: it lives as long as the pass.
            Some(scaler) => scaler.scale(loss)?.backward(retain_graph)?,
        }
        Ok(())
    }

    /// The optimizer's step. With a scaler it is skipped where gradients are not finite, and [`Update::rescale`] has to follow.
    pub(crate) fn step(&mut self) -> Result<()> {
        if let (Some(norm), Some(optimizer)) = (self.clip_grad_norm, &self.optimizer) {
            let parameters = optimizer.parameters().to_vec();
            self.clip(&parameters, norm)?;
        }
        self.apply()
    }

    /// Clips the gradients of `parameters`, in their order, after the loss's scale is taken off. Returns their norm before.
    pub fn clip(&mut self, parameters: &[Parameter], norm: f64) -> Result<Option<Array>> {
        if let (Some(scaler), Some(optimizer)) = (&mut self.scaler, &self.optimizer) {
            scaler.unscale(&**optimizer)?;
        }
        Ok(clip_grad_norm(parameters, norm)?)
    }

    /// The optimizer's step without clipping.
    pub fn apply(&mut self) -> Result<()> {
        let Some(optimizer) = &mut self.optimizer else { return Ok(()) };
        match &mut self.scaler {
            None => optimizer.step()?,
            Some(scaler) => {
                scaler.step(&mut **optimizer)?;
            }
        }
        Ok(())
    }

    /// `scaler.update()`.
    pub fn rescale(&mut self) -> Result<()> {
        self.scaler.as_mut().map_or(Ok(()), |scaler| Ok(scaler.update()?))
    }
}
