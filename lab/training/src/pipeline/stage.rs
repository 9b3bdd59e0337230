//! One device of a split run.

use std::ops::Range;

use memcore::Device;
use memcore::memory::Category;
use memcore::nn::Parameter;

/// A device and the pieces of the network that lie on it.
pub struct Stage {
    /// The device.
    pub device: Device,
    /// Numbers of the pieces.
    pub pieces: Range<usize>,
    /// The modules of the pieces, in words; `None` if the numbers say it.
    pub modules: Option<String>,
    /// Parameters that its optimizer updates.
    pub parameters: Vec<Parameter>,
    /// Number of micro-batches whose activations are held, and its maximum.
    in_flight: usize,
    pub(super) most_in_flight: usize,
    /// The most bytes that the graph held after a forward pass.
    pub(super) activation_bytes: u64,
    /// Peak of gradient bytes.
    pub(super) gradient_bytes: u64,
}

impl Stage {
    /// A stage whose optimizer updates those of `parameters` that lie on its device.
    pub fn new<'a>(
        device: &Device,
        pieces: Range<usize>,
        modules: Option<String>,
        parameters: impl IntoIterator<Item = &'a Parameter>,
    ) -> Self {
        let own = parameters.into_iter().filter(|parameter| parameter.array().device().is_same(device));
        Self {
            device: device.clone(),
            pieces,
            modules,
            parameters: own.cloned().collect(),
            in_flight: 0,
            most_in_flight: 0,
            activation_bytes: 0,
            gradient_bytes: 0,
        }
    }

    /// Counts a micro-batch whose forward pass is done.
    pub(super) fn begun(&mut self) {
        self.in_flight += 1;
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        self.activation_bytes = self.activation_bytes.max(self.bytes(Category::Activation));
    }

    /// Removes a micro-batch whose backward pass is done.
    pub(super) fn ended(&mut self) {
        self.in_flight -= 1;
        self.gradient_bytes = self.gradient_bytes.max(self.bytes(Category::Gradient));
    }

    /// Bytes of this category now in use.
    pub(super) fn bytes(&self, category: Category) -> u64 {
        self.device.with_ledger(|ledger| ledger.usage().by_category()[category as usize])
    }
}
