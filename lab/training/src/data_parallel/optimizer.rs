//! The optimizer's step on a rank's part of the parameters.

use std::sync::Arc;

use memcore::memory::Category;
use memcore::nn::Parameter;
use memcore::optim::{Optimizer, ParameterState, clip_grad_norm};
use memcore::{Array, DType, Device, Error, Result, context};

use super::collective::Collective;
use super::tally::Tally;
use super::unit::Unit;

/// A float32 copy for the optimizer to work on: a master weight.
pub(super) fn master(path: &str, value: &Array) -> Result<Parameter> {
    let _op = context::op("to>_to_copy");
    let copy = Array::empty_as(value.device(), value.dims(), DType::F32, Category::OptimizerState)?;
    copy.copy_(value)?;
    Ok(Parameter::new(path, copy))
}

/// A value to update.
struct Target {
    /// The value that the network computes with.
    value: Array,
    /// True if the optimizer has a float32 copy of it.
    wide: bool,
}

/// An optimizer with the values that it updates.
struct Inner {
    optimizer: Box<dyn Optimizer>,
    /// One for each of the optimizer's parameters.
    targets: Vec<Target>,
}

impl Inner {
    /// `values` are what the optimizer's parameters are, or are copies of, in their order.
    fn new(optimizer: Box<dyn Optimizer>, values: Vec<Array>) -> Self {
        let own = optimizer.parameters().iter();
        let targets = own.zip(values).map(|(p, value)| Target { wide: p.array().dtype() != value.dtype(), value });
        Self { targets: targets.collect(), optimizer }
    }

    /// Takes a step with these gradients. Gradients that were widened for it are freed after it, and the copies are written back to the values.
    fn step(&mut self, gradients: impl Iterator<Item = Option<Array>>) -> Result<()> {
        for ((own, target), gradient) in self.optimizer.parameters().iter().zip(&self.targets).zip(gradients) {
            let gradient = match gradient {
                Some(narrow) if target.wide => {
                    let _op = context::op("to>_to_copy");
                    Some(narrow.cast(DType::F32)?)
                }
                other => other,
            };
            own.tensor().set_grad(gradient);
        }
        self.optimizer.step()?;
        for (own, target) in self.optimizer.parameters().iter().zip(&self.targets) {
            if own.grad().is_some() && target.wide {
                let _op = context::op("copy_");
                target.value.copy_(own.array())?;
            }
            own.tensor().set_grad(None);
        }
        Ok(())
    }
}

/// Every rank updates all parameters, through float32 copies of them.
pub(super) struct Masters {
    inner: Inner,
    parameters: Vec<Parameter>,
}

impl Masters {
    /// `optimizer` works on the copies of `parameters`.
    pub(crate) fn new(optimizer: Box<dyn Optimizer>, parameters: Vec<Parameter>) -> Self {
        let values = parameters.iter().map(|parameter| parameter.array().clone()).collect();
        Self { inner: Inner::new(optimizer, values), parameters }
    }
}

impl Optimizer for Masters {
    fn step(&mut self) -> Result<()> {
        self.inner.step(self.parameters.iter().map(Parameter::grad))
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        self.inner.optimizer.state(index)
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        self.inner.optimizer.make_state(index, steps)
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn zero_grad_name(&self) -> &'static str {
        self.inner.optimizer.zero_grad_name()
    }
}

/// Place of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Index of its unit.
    pub(super) unit: usize,
    /// Offset of its first value in the unit.
    pub(super) offset: usize,
}

/// Each rank updates its shard of each unit.
pub(super) struct Sharded {
    inner: Inner,
    units: Vec<Arc<Unit>>,
    parameters: Vec<Parameter>,
    places: Vec<Place>,
    /// True if every rank has all parameters: those that other ranks updated have to be gathered.
    gathers: bool,
    /// Largest norm of the gradients of all ranks together.
    clip: Option<f64>,
}

impl Sharded {
    /// `optimizer` works on the shards of `units` or on copies of them, in their order; `places` gives the place of each of the network's parameters.
    pub(crate) fn new(
        optimizer: Box<dyn Optimizer>,
        units: Vec<Arc<Unit>>,
        (parameters, places): (Vec<Parameter>, Vec<Place>),
        gathers: bool,
        clip: Option<f64>,
    ) -> Self {
        let values = units.iter().map(|unit| unit.shard.clone()).collect();
        Self { inner: Inner::new(optimizer, values), units, parameters, places, gathers, clip }
    }

    /// Returns this rank's shards of the gradients, clipped: each rank takes the norm of its own shards, and the squares are summed over all ranks.
    fn gradients(&self) -> Result<Vec<Option<Array>>> {
        let shards: Vec<Option<Array>> = self.units.iter().map(|unit| unit.take_gradient()).collect();
        if let (Some(norm), Some(unit)) = (self.clip, self.units.first()) {
            let held = shards.iter().flatten().map(|shard| {
                let held = Parameter::new("shard", shard.clone());
                held.tensor().set_grad(Some(shard.clone()));
                held
            });
            clip_grad_norm(&held.collect::<Vec<Parameter>>(), norm)?;
            unit.count_norm();
        }
        Ok(shards)
    }

    /// Reduces the gradients that backward left whole (all of them, in stage 1), unit by unit.
    fn reduce(&self) -> Result<()> {
        for (number, unit) in self.units.iter().enumerate() {
            let own = self.parameters.iter().zip(&self.places).filter(|(_, place)| place.unit == number);
            for (parameter, place) in own {
                if let Some(gradient) = parameter.grad() {
                    unit.collect(place.offset, &gradient)?;
                    drop(gradient);
                    parameter.tensor().set_grad(None);
                }
            }
            unit.reduce()?;
        }
        Ok(())
    }
}

impl Optimizer for Sharded {
    fn step(&mut self) -> Result<()> {
        self.reduce()?;
        let gradients = self.gradients()?;
        self.inner.step(gradients.into_iter())?;
        if self.gathers {
            // In place: every rank's shard is a part of the flat parameters.
            self.units.iter().for_each(|unit| unit.count(Collective::AllGather));
        }
        Ok(())
    }

    /// Always `None`: states belong to shards, each of which holds parts of several parameters.
    fn state(&self, _index: usize) -> Option<ParameterState> {
        None
    }

    fn make_state(&mut self, _index: usize, _steps: i32) -> Result<Option<ParameterState>> {
        Err(Error::invalid("optimizer", "what a rank keeps is of shards, not of parameters"))
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn zero_grad_name(&self) -> &'static str {
        self.inner.optimizer.zero_grad_name()
    }
}

/// Records the bytes of the model states around each step of another optimizer.
pub(super) struct Watched {
    pub(super) optimizer: Box<dyn Optimizer>,
    pub(super) device: Device,
    pub(super) tally: Arc<Tally>,
}

impl Optimizer for Watched {
    fn step(&mut self) -> Result<()> {
        self.tally.after_backward(&self.device);
        self.optimizer.step()?;
        self.tally.after_step(&self.device);
        Ok(())
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        self.optimizer.state(index)
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        self.optimizer.make_state(index, steps)
    }

    fn parameters(&self) -> &[Parameter] {
        self.optimizer.parameters()
    }

    fn zero_grad_name(&self) -> &'static str {
        self.optimizer.zero_grad_name()
    }

    fn zero_grad(&self, set_to_none: bool) -> Result<()> {
        self.optimizer.zero_grad(set_to_none)
    }
}
