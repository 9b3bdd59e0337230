//! Optimizers of parts of the parameters, which are used as one.

use memcore::Result;
use memcore::nn::Parameter;
use memcore::optim::{Optimizer, ParameterState};

/// Optimizers that step one after the other.
pub struct Groups {
    groups: Vec<Box<dyn Optimizer>>,
    /// Parameters of all groups, one group after the other.
    parameters: Vec<Parameter>,
}

impl Groups {
    /// Uses these optimizers as one.
    pub fn new(groups: Vec<Box<dyn Optimizer>>) -> Self {
        let parameters = groups.iter().flat_map(|group| group.parameters().to_vec()).collect();
        Self { groups, parameters }
    }

    /// Returns the group of the parameter of this number, and its number there.
    fn place(&self, mut index: usize) -> Option<(usize, usize)> {
        for (number, group) in self.groups.iter().enumerate() {
            match index.checked_sub(group.parameters().len()) {
                None => return Some((number, index)),
                Some(rest) => index = rest,
            }
        }
        None
    }
}

impl Optimizer for Groups {
    fn step(&mut self) -> Result<()> {
        self.groups.iter_mut().try_for_each(|group| group.step())
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let (group, index) = self.place(index)?;
        self.groups[group].state(index)
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        self.place(index).map_or(Ok(None), |(group, index)| self.groups[group].make_state(index, steps))
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn takes_loss_scale(&self) -> bool {
        self.groups.iter().all(|group| group.takes_loss_scale())
    }

    fn zero_grad_name(&self) -> &'static str {
        self.groups.first().map_or("", |group| group.zero_grad_name())
    }
}
