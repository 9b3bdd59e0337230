//! A model and the variables of a training script, driven phase by phase. A fixed loop cannot do this: changing batches, a loss
//! without a backward pass, variables that are dropped in between.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use lab_base::error::Result;
use lab_models::{Architecture, Model, ModelOptions, architecture};
use lab_training::record::Row;
use lab_training::{
    ModelBatch, ModelStep, OptimizerKind, OptimizerSettings, Phase, Precision, RunSettings, Source, TrainStep, Update,
    bound,
};
use memcore::Device;
use memcore::memory::{Category, CategoryBytes, Event, PeakComposition};
use memcore::nn::{Init, Sequential};

use super::Setup;

/// A row, with the composition of memory at that moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) row: Row,
    /// Bytes by category.
    pub(super) by_category: CategoryBytes,
    /// Bytes by category as the program requested them, before blocks are rounded up. Known only if the device
    /// records its history.
    pub(super) requested: Option<CategoryBytes>,
}

/// Figures of one step.
#[derive(Clone, Debug)]
pub(super) struct StepRecord {
    pub(super) batch: usize,
    pub(super) moments: Vec<Sample>,
    /// Composition at the peak of the step.
    pub(super) peak: PeakComposition,
    /// Most reserved bytes during the step.
    pub(super) reserved_peak: u64,
    /// Name of the phase with the peak.
    pub(super) peak_phase: String,
    /// Number of graph nodes alive at the end of the step: those of its forward pass.
    pub(super) nodes: u64,
    /// Host memory of those nodes.
    pub(super) graph_host_bytes: u64,
}

/// Memory that a script can delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// Result of the network.
    Output,
    /// The loss.
    Loss,
    /// Input and targets of the batch.
    Batch,
    /// Gradients, as `zero_grad()` frees them.
    Gradients,
    /// The optimizer.
    OptimizerState,
    /// The model.
    Parameters,
    /// Workspaces that the libraries keep.
    Workspaces,
}

/// A model in training whose phases are called one by one.
pub(super) struct Session {
    phases: ModelStep,
}

impl Deref for Session {
    type Target = ModelStep;

    fn deref(&self) -> &ModelStep {
        &self.phases
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut ModelStep {
        &mut self.phases
    }
}

impl Session {
    /// Builds a network by name with its optimizer, in f32.
    pub(crate) fn new(device: &Device, name: &str, optimizer: OptimizerKind, lr: f64, seed: u64) -> Result<Self> {
        let architecture = architecture(name, &ModelOptions::default())?;
        Self::in_f32(device, &*architecture, &OptimizerSettings::new(optimizer, lr), seed)
    }

    /// Builds a network with its optimizer, in f32.
    pub(super) fn in_f32(
        device: &Device,
        architecture: &dyn Architecture,
        optimizer: &OptimizerSettings,
        seed: u64,
    ) -> Result<Self> {
        Self::in_precision(device, architecture, optimizer, Precision::Fp32, seed)
    }

    /// Builds a network with its optimizer, and the loss scaler that its precision comes with.
    pub(super) fn in_precision(
        device: &Device,
        architecture: &dyn Architecture,
        optimizer: &OptimizerSettings,
        precision: Precision,
        seed: u64,
    ) -> Result<Self> {
        // The numbers of examples and steps stand for nothing: each step names its own batch.
        let settings = RunSettings { precision, seed, ..RunSettings::new(1, 1, *optimizer) };
        device.phase("model");
        let model = Model::build(architecture, &Init::new(device, precision.dtype(), seed))?;
        let update = Update::new(&settings, &model.parameters)?;
        let source = Source::Synthetic { seed };
        Ok(Self { phases: ModelStep::of_model(device, model, update, &settings, source) })
    }

    /// Builds the network that the experiment is asked about with its usual optimizer, or else the first article's
    /// network.
    pub(super) fn asked(device: &Device, setup: &Setup<'_>) -> Result<Self> {
        let Some(name) = setup.model else { return Self::simple_cnn(device, setup.seed) };
        let defaults = architecture(name, &ModelOptions::default())?.defaults();
        Self::new(device, name, OptimizerKind::parse(defaults.optimizer)?, defaults.lr, setup.seed)
    }

    /// Builds the first article's network and optimizer.
    pub(super) fn simple_cnn(device: &Device, seed: u64) -> Result<Self> {
        Self::new(device, "simple-cnn", OptimizerKind::Adam, 1e-3, seed)
    }

    /// Builds the second article's first network and optimizer.
    pub(super) fn linear(device: &Device, seed: u64) -> Result<Self> {
        Self::new(device, "linear", OptimizerKind::Sgd, 1e-2, seed)
    }

    pub(super) fn moment(&self, label: impl Into<String>) -> Sample {
        moment(&self.network.device, label)
    }

    /// Computes the gradients of the loss, with `retain_graph`.
    pub(super) fn backward_retaining(&mut self, retain_graph: bool) -> Result<()> {
        let ModelStep { update, loss, .. } = &mut self.phases;
        update.backward_retaining(bound(loss)?, retain_graph)
    }

    /// Deletes a variable.
    pub(super) fn delete(&mut self, variable: Variable) -> Result<()> {
        match variable {
            Variable::Output => self.output = None,
            Variable::Loss => self.loss = None,
            Variable::Batch => self.batch = ModelBatch::default(),
            Variable::Gradients => self.zero_grad()?,
            Variable::OptimizerState => self.update.optimizer = None,
            Variable::Parameters => {
                self.network.model.parameters.clear();
                self.network.model.module = Box::new(Sequential::new());
            }
            Variable::Workspaces => self.network.device.release_workspaces(),
        }
        Ok(())
    }

    /// Takes one whole step. Its peaks start anew.
    pub(super) fn whole_step(&mut self, label: &str, batch: usize) -> Result<StepRecord> {
        self.network.device.reset_peak_stats();
        let mut moments = Vec::with_capacity(6);
        for phase in Phase::USUAL {
            self.network.device.phase(phase.name());
            match phase {
                Phase::Input => self.load_batch(batch, 0)?,
                Phase::ZeroGrad => self.zero_grad()?,
                Phase::Forward => self.forward()?,
                Phase::Loss => TrainStep::loss(&mut self.phases)?,
                Phase::Backward => self.backward()?,
                _ => self.step()?,
            }
            moments.push(self.moment(format!("{label}.{}", phase.name())));
        }
        self.network.device.synchronize()?;
        let peak = self.network.device.usage().at_peak();
        let peak_phase = self.network.device.with_ledger(|ledger| ledger.phase_name(peak.origin.phase).to_string());
        let reserved_peak = self.network.device.stats().reserved_bytes.all.peak;
        let tape = self.network.device.tape();
        let (nodes, graph_host_bytes) = (tape.len() as u64, tape.host_bytes());
        Ok(StepRecord { batch, moments, peak, reserved_peak, peak_phase, nodes, graph_host_bytes })
    }
}

/// True if the device never had to give its cache back to serve a request. A prediction does not know when that
/// happens.
pub(super) fn undisturbed(device: &Device) -> bool {
    device.stats().num_alloc_retries == 0
}

/// Samples the device's memory now.
pub(super) fn moment(device: &Device, label: impl Into<String>) -> Sample {
    let requested = device.with_ledger(|ledger| requested(ledger.history()));
    Sample { row: Row::take(device, label), by_category: *device.usage().by_category(), requested }
}

/// Bytes that are held after these events, as requested. `None` without any events.
fn requested(history: &[Event]) -> Option<CategoryBytes> {
    if history.is_empty() {
        return None;
    }
    let mut live: BTreeMap<u64, (u64, Category)> = BTreeMap::new();
    for event in history {
        match *event {
            Event::Alloc { id, requested_bytes, category, .. } => drop(live.insert(id.0, (requested_bytes, category))),
            Event::Free { id, .. } => drop(live.remove(&id.0)),
            Event::Retag { id, to } => {
                if let Some((_, category)) = live.get_mut(&id.0) {
                    *category = to;
                }
            }
            _ => {}
        }
    }
    let mut sums = CategoryBytes::default();
    live.values().for_each(|(bytes, category)| sums[*category as usize] += bytes);
    Some(sums)
}
