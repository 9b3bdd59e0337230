//! The network that is split, and whose step is divided among ranks.

use lab_base::error::Result;
use lab_models::Architecture;

use super::super::perceptron::perceptron;

/// Number of hidden layers. Each is a piece that can lie on a device of its own.
pub(super) const LAYERS: usize = 7;
pub(super) const WIDTH: usize = 256;
pub(super) const CLASSES: usize = 10;

pub(super) fn network() -> Result<Box<dyn Architecture>> {
    perceptron(LAYERS, WIDTH, WIDTH, CLASSES)
}
