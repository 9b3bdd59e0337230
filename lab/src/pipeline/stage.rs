//! One device's part of the network.

use std::ops::Range;

use memcore::memory::Category;
use memcore::nn::{Init, Module, Parameter, Sequential, Training};
use memcore::{DType, Device, Tensor, ops};

use super::cut::Cut;
use crate::error::{Error, Result};
use crate::models::{Architecture, values_by_piece};

/// A device and the pieces of the network that lie on it.
pub(super) struct Stage {
    pub(super) device: Device,
    /// Numbers of the pieces.
    pub(super) pieces: Range<usize>,
    modules: Sequential,
    pub(super) parameters: Vec<Parameter>,
    /// Micro-batches whose activations are held, and the most there were.
    in_flight: usize,
    pub(super) most_in_flight: usize,
    /// The most bytes that the graph held after a forward pass.
    pub(super) activation_bytes: u64,
    /// The most bytes of gradients.
    pub(super) gradient_bytes: u64,
}

/// Builds a network over `devices`. Also returns the switch between training and evaluation.
///
/// # Errors
/// [`Error::Usage`] for a network that cannot be split, for a cut where none can be; those of the devices.
pub(super) fn build(
    architecture: &dyn Architecture,
    devices: &[Device],
    cut: &Cut,
    dtype: DType,
    seed: u64,
) -> Result<(Vec<Stage>, Training)> {
    if let Some(reason) = architecture.indivisible().filter(|_| devices.len() > 1) {
        return Err(Error::usage("--devices", format!("{} cannot be split: {reason}", architecture.name())));
    }
    let Some(first) = devices.first() else { return Err(Error::usage("--devices", "one device at least is needed")) };
    let init = Init::new(first, dtype, seed);
    if architecture.indivisible().is_some() {
        let module = Sequential::of(vec![architecture.build(&init)?]);
        return Ok((vec![Stage::new(first, 0..1, module, init.parameters())], init.training()));
    }
    let ranges = cut.stages(&piece_bytes(architecture)?, devices.len())?;
    let device_of = |piece: usize| {
        let stage = ranges.iter().position(|range| range.contains(&piece));
        stage.and_then(|stage| devices.get(stage)).unwrap_or(first)
    };
    let mut pieces = architecture.pieces(&|piece| init.on(device_of(piece)))?.into_iter();
    let stages = devices.iter().zip(&ranges).map(|(device, range)| {
        let modules = Sequential::of(pieces.by_ref().take(range.len()).collect());
        let parameters = init.parameters().into_iter().filter(|p| p.array().device().is_same(device)).collect();
        Stage::new(device, range.clone(), modules, parameters)
    });
    Ok((stages.collect(), init.training()))
}

/// Bytes of each piece's parameters in float32.
fn piece_bytes(architecture: &dyn Architecture) -> Result<Vec<u64>> {
    let pieces = values_by_piece(architecture)?;
    Ok(pieces.iter().map(|values| 4 * values.iter().sum::<usize>() as u64).collect())
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

    /// The result for what the stage before gave, moved here first.
    pub(super) fn forward(&self, x: Tensor) -> Result<Tensor> {
        let here = ops::to_device(&x, &self.device)?;
        // What the stage before gave goes now, unless its own graph keeps it.
        drop(x);
        Ok(self.modules.forward(&here)?)
    }

    /// A micro-batch's forward pass is done.
    pub(super) fn begun(&mut self) {
        self.in_flight += 1;
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        self.activation_bytes = self.activation_bytes.max(self.bytes(Category::Activation));
    }

    /// Its backward pass is done.
    pub(super) fn ended(&mut self) {
        self.in_flight -= 1;
        self.gradient_bytes = self.gradient_bytes.max(self.bytes(Category::Gradient));
    }

    /// Bytes in use for this now.
    pub(super) fn bytes(&self, category: Category) -> u64 {
        self.device.with_ledger(|ledger| ledger.usage().by_category()[category as usize])
    }
}
