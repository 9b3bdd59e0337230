//! One device's part of the network.

use std::ops::Range;

use lab_base::error::{Error, Result};
use lab_models::{Architecture, measured};
use memcore::memory::Category;
use memcore::nn::{Copied, Init, Module, Parameter, Sequential, Training};
use memcore::{Array, DType, Device, Tensor, ops};

use super::cut::Cut;

/// A device and the pieces of the network that lie on it.
pub(super) struct Stage {
    pub(super) device: Device,
    /// Numbers of the pieces.
    pub(super) pieces: Range<usize>,
    modules: Sequential,
    /// Parameters that its optimizer updates.
    pub(super) parameters: Vec<Parameter>,
    /// Number of micro-batches whose activations are held, and its maximum.
    in_flight: usize,
    pub(super) most_in_flight: usize,
    /// The most bytes that the graph held after a forward pass.
    pub(super) activation_bytes: u64,
    /// Peak of gradient bytes.
    pub(super) gradient_bytes: u64,
}

/// A network over devices.
pub(super) struct Built {
    pub(super) stages: Vec<Stage>,
    /// Parameters, in the order of PyTorch's `model.parameters()`.
    pub(super) parameters: Vec<Parameter>,
    /// Parameters that two devices have.
    pub(super) copies: Vec<Copied>,
    /// Buffers, such as running statistics, with their paths.
    pub(super) buffers: Vec<(String, Array)>,
    /// The switch between training and evaluation.
    pub(super) training: Training,
}

/// Builds a network over `devices`.
///
/// # Errors
/// [`Error::Usage`] for a network that cannot be split, and for an impossible cut; those of the devices.
pub(super) fn build(
    architecture: &dyn Architecture,
    devices: &[Device],
    cut: &Cut,
    dtype: DType,
    seed: u64,
) -> Result<Built> {
    if let Some(reason) = architecture.indivisible().filter(|_| devices.len() > 1) {
        return Err(Error::usage("devices", format!("{} cannot be split: {reason}", architecture.name())));
    }
    let Some(first) = devices.first() else { return Err(Error::usage("devices", "one device at least is needed")) };
    let init = Init::new(first, dtype, seed);
    let (ranges, mut pieces) = if architecture.indivisible().is_some() {
        (std::iter::once(0..1).collect(), vec![architecture.build(&init)?].into_iter())
    } else {
        let ranges = cut.stages(&piece_bytes(architecture)?, devices.len())?;
        let device_of = |piece: usize| {
            let stage = ranges.iter().position(|range| range.contains(&piece));
            stage.and_then(|stage| devices.get(stage)).unwrap_or(first)
        };
        let pieces = architecture.pieces(&|piece| init.on(device_of(piece)))?.into_iter();
        (ranges, pieces)
    };
    let (parameters, copies) = (architecture.optimizer_order(init.parameters()), init.copies());
    let stages = devices.iter().zip(&ranges).map(|(device, range)| {
        let modules = Sequential::of(pieces.by_ref().take(range.len()).collect());
        let all = parameters.iter().chain(copies.iter().map(|copied| &copied.copy));
        let own = all.filter(|parameter| parameter.array().device().is_same(device)).cloned().collect();
        Stage::new(device, range.clone(), modules, own)
    });
    let (stages, buffers, training) = (stages.collect(), init.buffers(), init.training());
    Ok(Built { stages, parameters, copies, buffers, training })
}

/// Bytes of each piece's parameters in float32.
fn piece_bytes(architecture: &dyn Architecture) -> Result<Vec<u64>> {
    let measured = measured(architecture)?;
    let mut bytes = vec![0; measured.pieces];
    for (piece, values) in measured.parameters.iter().chain(&measured.copies) {
        bytes[*piece] += 4 * *values as u64;
    }
    Ok(bytes)
}

impl Stage {
    fn new(device: &Device, pieces: Range<usize>, modules: Sequential, parameters: Vec<Parameter>) -> Self {
        Self {
            device: device.clone(),
            pieces,
            modules,
            parameters,
            in_flight: 0,
            most_in_flight: 0,
            activation_bytes: 0,
            gradient_bytes: 0,
        }
    }

    /// Moves the previous stage's result here, and runs the stage on it.
    pub(super) fn forward(&self, x: Tensor) -> Result<Tensor> {
        let here = ops::to_device(&x, &self.device)?;
        // The previous stage's result is freed now, unless its own graph keeps it.
        drop(x);
        Ok(self.modules.forward(&here)?)
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
