//! Backward and the optimizer's step, with loss scaling and gradient clipping if they are asked for.

use lab_base::error::Result;
use memcore::amp::GradScaler;
use memcore::nn::Parameter;
use memcore::optim::{Optimizer, clip_grad_norm};
use memcore::{Array, Tensor};

use super::schedule::Phase;
use super::settings::RunSettings;

/// The optimizer and the loss scaler. Dropped in the order of a script's variables: the optimizer, then the scaler.
pub struct Update {
    /// The optimizer; `None` for a program that takes no step.
    pub optimizer: Option<Box<dyn Optimizer>>,
    /// The loss scaler; only under autocast to float16.
    pub scaler: Option<GradScaler>,
    clip_grad_norm: Option<f64>,
    set_to_none: bool,
}

impl Update {
    /// Builds the optimizer over `parameters`; none if the schedule has no phase for it.
    ///
    /// # Errors
    /// A setting that the optimizer does not have, names that no parameter has; those of the device.
    pub fn new(settings: &RunSettings, parameters: &[Parameter]) -> Result<Self> {
        settings.check_tuned(parameters)?;
        let steps = [Phase::ZeroGrad, Phase::Step].iter().any(|phase| settings.schedule.names(*phase));
        let optimizer = steps.then(|| settings.optimizer.build(parameters.to_vec())).transpose()?;
        Ok(Self::with(settings, optimizer))
    }

    /// Uses an optimizer that was made elsewhere.
    pub fn with(settings: &RunSettings, optimizer: Option<Box<dyn Optimizer>>) -> Self {
        Self {
            optimizer,
            scaler: settings.precision.scales_loss().then(GradScaler::default),
            clip_grad_norm: settings.clip_grad_norm,
            set_to_none: settings.set_to_none,
        }
    }

    /// The optimizer, which holds the state; `None` for a program that takes no step.
    pub fn optimizer(&self) -> Option<&dyn Optimizer> {
        self.optimizer.as_deref()
    }

    /// The optimizer, to load a state into it.
    pub(crate) fn optimizer_mut(&mut self) -> Option<&mut (dyn Optimizer + 'static)> {
        self.optimizer.as_deref_mut()
    }

    /// The loss scaler; `None` if the loss is not scaled.
    pub(crate) fn scaler(&self) -> Option<&GradScaler> {
        self.scaler.as_ref()
    }

    /// The loss scaler, to load a scale into it.
    pub(crate) fn scaler_mut(&mut self) -> Option<&mut GradScaler> {
        self.scaler.as_mut()
    }

    /// Frees or zeroes the gradients.
    pub(crate) fn zero_grad(&self) -> Result<()> {
        self.optimizer.as_ref().map_or(Ok(()), |optimizer| Ok(optimizer.zero_grad(self.set_to_none)?))
    }

    /// Computes the gradients of a loss.
    pub fn backward(&mut self, loss: &Tensor) -> Result<()> {
        self.backward_retaining(loss, false)
    }

    /// Computes the gradients of a loss, with `retain_graph`.
    pub fn backward_retaining(&mut self, loss: &Tensor, retain_graph: bool) -> Result<()> {
        match &mut self.scaler {
            None => loss.backward(retain_graph)?,
            // The scaled loss is not a variable of the program: it lives only during the pass.
            Some(scaler) => scaler.scale(loss)?.backward(retain_graph)?,
        }
        Ok(())
    }

    /// Takes the optimizer's step. With a scaler the step is skipped if gradients are not finite, and [`Update::rescale`] has to follow.
    pub(crate) fn step(&mut self) -> Result<()> {
        if let (Some(norm), Some(optimizer)) = (self.clip_grad_norm, &self.optimizer) {
            let parameters = optimizer.parameters().to_vec();
            self.clip(&parameters, norm)?;
        }
        self.apply()
    }

    /// Clips the gradients of `parameters`, in their order, after removing the loss's scale. Returns the norm before clipping.
    pub fn clip(&mut self, parameters: &[Parameter], norm: f64) -> Result<Option<Array>> {
        if let (Some(scaler), Some(optimizer)) = (&mut self.scaler, &self.optimizer) {
            scaler.unscale(&**optimizer)?;
        }
        Ok(clip_grad_norm(parameters, norm)?)
    }

    /// Takes the optimizer's step without clipping.
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
