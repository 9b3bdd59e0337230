//! Results of a split run.

use std::ops::Range;

use crate::Accuracy;
use crate::record::{Account, Row};

/// What one device held and moved.
#[derive(Clone, Debug)]
pub struct StageFigures {
    /// Numbers of the network's pieces on the device.
    pub pieces: Range<usize>,
    /// The modules of the pieces, in words; `None` if the numbers say it.
    pub modules: Option<String>,
    /// Number of trained values on the device, including copies of other devices' parameters.
    pub parameters: u64,
    /// Bytes of the parameters.
    pub parameter_bytes: u64,
    /// Peak of gradient bytes.
    pub gradient_bytes: u64,
    /// Bytes of the optimizer's states after the last step.
    pub optimizer_bytes: u64,
    /// Peak of the bytes that the graph kept for backward.
    pub activation_bytes: u64,
    /// The most micro-batches whose activations were held at once.
    pub in_flight: usize,
    /// Bytes moved to other devices in the whole run: results forward, gradients back.
    pub sent_bytes: u64,
    /// Bytes moved here from other devices in the whole run.
    pub received_bytes: u64,
    /// The ledger's account after the last step.
    pub account: Account,
    /// One row per phase: `model`, then each step's, and `end` after everything was dropped.
    pub rows: Vec<Row>,
}

/// Result of a split run.
#[derive(Clone, Debug)]
pub struct PipelineResult {
    /// One per device, in the order of the network.
    pub stages: Vec<StageFigures>,
    /// Number of trained values of the network.
    pub parameters: u64,
    /// One loss per optimizer step (the mean of its micro-batches); empty on devices that compute nothing.
    pub losses: Vec<f64>,
    /// Milliseconds of each step; empty on devices that compute nothing. The devices work one after the other here.
    pub ms_per_step: Vec<f64>,
    /// Share of test examples that the trained network classifies correctly; `None` without test examples.
    pub accuracy: Option<Accuracy>,
    /// True if it was stopped before the last step.
    pub interrupted: bool,
}
