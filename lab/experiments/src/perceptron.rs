//! The perceptron that several experiments train: hidden layers of one width, between values and classes.

use lab_base::error::Result;
use lab_models::{Architecture, ModelOptions, architecture};

use super::Setup;

/// Values of an example.
pub(super) const FEATURES: usize = 64;
pub(super) const CLASSES: usize = 10;

/// Sizes of a perceptron.
#[derive(Clone, Copy, Debug)]
pub(super) struct Perceptron {
    pub(super) width: usize,
    /// Hidden layers.
    pub(super) layers: usize,
}

impl Perceptron {
    /// Returns the sizes that the user set: `width` and `layers`.
    pub(super) fn asked(setup: &Setup<'_>) -> Result<Self> {
        Ok(Self { width: setup.within("width", 512, 1..=1 << 16)?, layers: setup.within("layers", 4, 1..=1024)? })
    }

    pub(super) fn network(self) -> Result<Box<dyn Architecture>> {
        perceptron(self.layers, self.width, FEATURES, CLASSES)
    }

    /// Rows of each parameter, and number of values in a row.
    pub(super) fn parameters(self) -> Vec<(usize, usize)> {
        let inputs = std::iter::once(FEATURES).chain(std::iter::repeat_n(self.width, self.layers - 1));
        let hidden = inputs.flat_map(|inputs| [(self.width, inputs), (self.width, 1)]);
        hidden.chain([(CLASSES, self.width), (CLASSES, 1)]).collect()
    }

    /// Bytes of each parameter.
    pub(super) fn bytes(self) -> Vec<u64> {
        self.parameters().into_iter().map(|(rows, row)| 4 * (rows * row) as u64).collect()
    }
}

/// Makes a perceptron.
pub(super) fn perceptron(
    layers: usize,
    width: usize,
    features: usize,
    classes: usize,
) -> Result<Box<dyn Architecture>> {
    let [layers, width, features, classes] = [layers, width, features, classes].map(Some);
    architecture("mlp", &ModelOptions { layers, width, features, classes, ..ModelOptions::default() })
}
