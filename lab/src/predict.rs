//! What training will take, from the sizes of the layers alone.
//!
//! A step is written down as the list of the tensors that exist during it: what each is, how many bytes it has as a formula in the batch `B`,
//! when it comes and when it goes. The bytes in use at a moment are then the sum over those that exist, each rounded up to 512; what the
//! pool adds (the rest of at most 1 MiB that a large block keeps) and what is reserved follow from the allocator's rules ([`Shelf`]). No
//! tensor, operator or device of the core is involved.

mod network;
mod rules;
mod shelf;
mod step;

pub use network::{Layer, Network, Objective, Update};
pub use rules::{ConvScratch, Rules};
pub use shelf::{Shelf, rounded};
pub use step::{Forecast, Variable};

/// One tensor that a prediction counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub what: String,
    /// Its bytes as a formula: `4·B·16·32·32`.
    pub formula: String,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes of its block.
    pub block_bytes: u64,
    /// Whether its size depends on the batch.
    pub per_example: bool,
}

impl Piece {
    /// What the pool adds beyond rounding to 512.
    pub fn slack_bytes(&self) -> u64 {
        self.block_bytes - rounded(self.requested_bytes)
    }
}

/// What is predicted for the end of a phase, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedRow {
    /// The phase.
    pub label: String,
    /// `memory_allocated()`.
    pub allocated: u64,
    /// The sum of the requests.
    pub requested: u64,
    /// `memory_reserved()`.
    pub reserved: u64,
    /// The highest `allocated` since the row before.
    pub phase_peak: u64,
}

/// What exists at the highest moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PredictedPeak {
    /// Bytes of all blocks.
    pub allocated: u64,
    /// During which phase.
    pub phase: String,
    /// The tensors, in the order in which they were made.
    pub pieces: Vec<Piece>,
}
