//! A run over several devices: a network that is split, or a step that is divided among ranks.

use lab_training::data_parallel::{DataParallelSettings, ModelStates, RankFigures, Sent};
use lab_training::pipeline::StageFigures;
use lab_training::record::{Account, Row};
use serde::{Deserialize, Serialize};

use super::super::device::DeviceInfo;
use super::figures::{ByCategory, PeakResult, RingBytes, by_category};

/// Memory of one of several devices.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountResult {
    /// Its peak.
    pub peak: PeakResult,
    /// Bytes allocated after the last step, by category.
    pub by_category: ByCategory,
    /// The five figures after the last step.
    pub rings: RingBytes,
    /// A row per phase.
    pub steps: Vec<Row>,
}

impl AccountResult {
    fn from_account(account: &Account, rows: &[Row]) -> Self {
        Self {
            peak: PeakResult::from_peak(&account.peak, account.reserved_peak),
            by_category: by_category(&account.by_category),
            rings: (&account.rings).into(),
            steps: rows.to_vec(),
        }
    }
}

/// One device of a network that is split. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageResult {
    /// Name, as typed: `cpu:0`.
    pub name: String,
    /// Description of the device.
    pub device: DeviceInfo,
    /// The first of the network's pieces on the device, and the one after the last.
    pub pieces: [usize; 2],
    /// The modules of the pieces, in words, of an exported network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<String>,
    /// Number of trained values on the device.
    pub parameters: u64,
    /// Their bytes.
    pub parameter_bytes: u64,
    /// Peak of gradient bytes.
    pub gradient_bytes: u64,
    /// The optimizer's states after the last step.
    pub optimizer_bytes: u64,
    /// Peak of the bytes that the graph kept for backward.
    pub activation_bytes: u64,
    /// The most micro-batches whose activations were held at once.
    pub in_flight: usize,
    /// Bytes moved to other devices in the whole run.
    pub sent_bytes: u64,
    /// Bytes moved here in the whole run.
    pub received_bytes: u64,
    /// Memory that it held.
    #[serde(flatten)]
    pub account: AccountResult,
}

impl StageResult {
    /// Makes the result of a device.
    pub fn from_figures(name: String, device: DeviceInfo, stage: &StageFigures) -> Self {
        Self {
            name,
            device,
            pieces: [stage.pieces.start, stage.pieces.end],
            modules: stage.modules.clone(),
            parameters: stage.parameters,
            parameter_bytes: stage.parameter_bytes,
            gradient_bytes: stage.gradient_bytes,
            optimizer_bytes: stage.optimizer_bytes,
            activation_bytes: stage.activation_bytes,
            in_flight: stage.in_flight,
            sent_bytes: stage.sent_bytes,
            received_bytes: stage.received_bytes,
            account: AccountResult::from_account(&stage.account, &stage.rows),
        }
    }
}

/// How a step is divided among ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataParallelFigures {
    /// Number of ranks.
    pub ranks: usize,
    /// ZeRO's stage.
    pub stage: usize,
    /// Examples per rank and step.
    pub examples_per_rank: usize,
    /// True if there are float32 master weights.
    pub master_weights: bool,
    /// True if gradients are views of the buckets that they are reduced in.
    pub gradient_as_bucket_view: bool,
    /// Model states on each rank by the ZeRO paper's formula.
    pub formula: StatesResult,
}

impl DataParallelFigures {
    /// Converts a run's settings.
    pub fn from_settings(settings: &DataParallelSettings, formula: ModelStates) -> Self {
        Self {
            ranks: settings.ranks,
            stage: settings.stage.number(),
            examples_per_rank: settings.share(),
            master_weights: settings.master_weights,
            gradient_as_bucket_view: settings.gradient_as_bucket_view,
            formula: formula.into(),
        }
    }
}

/// Model states, in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StatesResult {
    /// Parameters.
    pub parameter_bytes: u64,
    /// Gradients.
    pub gradient_bytes: u64,
    /// The optimizer's states, including master weights.
    pub optimizer_bytes: u64,
    /// Their sum.
    pub total_bytes: u64,
}

impl From<ModelStates> for StatesResult {
    fn from(states: ModelStates) -> Self {
        Self {
            parameter_bytes: states.parameter_bytes,
            gradient_bytes: states.gradient_bytes,
            optimizer_bytes: states.optimizer_bytes,
            total_bytes: states.total(),
        }
    }
}

/// Bytes that a rank sends in a step.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SentBytes {
    /// Bytes in all-reduces.
    pub all_reduce: u64,
    /// Bytes in reduce-scatters.
    pub reduce_scatter: u64,
    /// Bytes in all-gathers.
    pub all_gather: u64,
    /// Sum of them.
    pub total: u64,
}

impl From<Sent> for SentBytes {
    fn from(sent: Sent) -> Self {
        let Sent { all_reduce, reduce_scatter, all_gather } = sent;
        Self { all_reduce, reduce_scatter, all_gather, total: sent.total() }
    }
}

/// One rank. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankResult {
    /// Number of the rank.
    pub rank: usize,
    /// Trained values that its optimizer updates.
    pub parameters_owned: u64,
    /// Padding values that make the shards equal.
    pub padding: u64,
    /// Number of groups of parameters that are divided.
    pub units: usize,
    /// Model states that stay allocated.
    pub model_states: StatesResult,
    /// The most bytes of parameters that were gathered at once.
    pub gathered_bytes: u64,
    /// The most bytes of buckets that gradients were collected in.
    pub bucket_bytes: u64,
    /// Bytes that it sends.
    pub sent_bytes_per_step: SentBytes,
    /// Memory that it held.
    #[serde(flatten)]
    pub account: AccountResult,
}

impl From<&RankFigures> for RankResult {
    fn from(rank: &RankFigures) -> Self {
        Self {
            rank: rank.rank,
            parameters_owned: rank.owned,
            padding: rank.padding,
            units: rank.units,
            model_states: rank.states.into(),
            gathered_bytes: rank.gathered_bytes,
            bucket_bytes: rank.bucket_bytes,
            sent_bytes_per_step: rank.sent.into(),
            account: AccountResult::from_account(&rank.account, &rank.rows),
        }
    }
}
