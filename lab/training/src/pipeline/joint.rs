//! One optimizer over the stages of a split network.

use memcore::nn::{Copied, Parameter};
use memcore::optim::{Optimizer, ParameterState};
use memcore::{Error, Result, context};

use super::stage::Stage;
use crate::OptimizerSettings;

/// One optimizer per device, used as one: PyTorch's optimizers also update the parameters of each device separately.
///
/// Its parameters are those of the network. Copies are updated together with their originals, with the originals' gradients; for [`state`](Optimizer::state)
/// they come after all others.
pub(super) struct Joint {
    parts: Vec<Box<dyn Optimizer>>,
    parameters: Vec<Parameter>,
    copies: Vec<Copied>,
    /// Index of the optimizer of each parameter, then of each copy, and its number there.
    places: Vec<(usize, usize)>,
}

impl Joint {
    /// Builds optimizers for what `stages` hold: `parameters` in the network's order, and copies of some.
    ///
    /// # Errors
    /// A setting that the optimizer does not have; those of the devices.
    pub(crate) fn new(
        settings: &OptimizerSettings,
        stages: &[Stage],
        parameters: Vec<Parameter>,
        copies: Vec<Copied>,
    ) -> lab_base::Result<Self> {
        let place = |parameter: &Parameter| {
            let stage = stages.iter().position(|stage| stage.device.is_same(parameter.array().device()))?;
            let own = stages[stage].parameters.iter().position(|own| own.path() == parameter.path())?;
            Some((stage, own))
        };
        let all = parameters.iter().chain(copies.iter().map(|copied| &copied.copy));
        let places: Option<Vec<(usize, usize)>> = all.map(place).collect();
        let places = places.ok_or_else(|| Error::invalid("optimizer", "a parameter that lies on no stage"))?;
        let parts =
            stages.iter().map(|stage| settings.build(stage.parameters.clone())).collect::<lab_base::Result<_>>()?;
        Ok(Self { parts, parameters, copies, places })
    }

    fn place(&self, index: usize) -> Result<(usize, usize)> {
        let beyond = || Error::invalid("optimizer", format!("parameter {index} of {}", self.places.len()));
        self.places.get(index).copied().ok_or_else(beyond)
    }
}

/// Adds each copy's gradient to that of its original. To be called after the last backward pass of a step.
pub(super) fn add_up(copies: &[Copied]) -> Result<()> {
    let _op = context::op("all_reduce");
    for Copied { original, copy } in copies {
        if let (Some(sum), Some(other)) = (original.grad(), copy.grad()) {
            sum.add_(&other.to_device(sum.device())?)?;
        }
    }
    Ok(())
}

impl Optimizer for Joint {
    fn step(&mut self) -> Result<()> {
        for Copied { original, copy } in &self.copies {
            let _op = context::op("all_reduce");
            let sum = original.grad().map(|grad| grad.to_device(copy.array().device())).transpose()?;
            let sum = sum.map(|sum| sum.with_category(memcore::memory::Category::Gradient));
            copy.tensor().set_grad(sum);
        }
        self.parts.iter_mut().try_for_each(|part| part.step())
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let (part, own) = *self.places.get(index)?;
        self.parts[part].state(own)
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        let (part, own) = self.place(index)?;
        self.parts[part].make_state(own, steps)
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn zero_grad_name(&self) -> &'static str {
        self.parts.first().map_or("zero_grad", |part| part.zero_grad_name())
    }

    fn zero_grad(&self, set_to_none: bool) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.zero_grad(set_to_none))
    }
}
