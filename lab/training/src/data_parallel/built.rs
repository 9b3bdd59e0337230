//! The parts that a rank is made of.

use std::sync::Arc;

use lab_models::Model;
use memcore::nn::Parameter;
use memcore::optim::Optimizer;

use super::reducer::Reducer;
use super::unit::{Gathering, Unit};

/// Model and optimizer of a rank.
pub(super) struct Built {
    pub(super) model: Model,
    pub(super) optimizer: Box<dyn Optimizer>,
    /// Units of trained parameters; empty if every rank has everything.
    pub(super) units: Vec<Arc<Unit>>,
    /// The parameters of each piece of the network; empty unless they are divided.
    pub(super) gatherings: Vec<Option<Gathering>>,
    /// The buckets of gradients that every rank has whole; `None` for a single rank, and if they are divided.
    pub(super) reducer: Option<Arc<Reducer>>,
}

/// The parameters that have gradients.
pub(super) fn trained(parameters: &[Parameter]) -> Vec<Parameter> {
    parameters.iter().filter(|parameter| parameter.is_trained()).cloned().collect()
}
