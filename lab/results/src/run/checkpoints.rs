//! Blocks that are computed again so that a run stays within an amount of memory, beside other choices.

use lab_base::figures::{counted, short};
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

/// The blocks that were chosen, and what other choices take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// The most that the run may reserve. Bytes.
    pub budget_bytes: u64,
    /// Numbers of the blocks that are computed again, with commas between; empty if none has to be.
    pub blocks: String,
    /// Blocks of the network.
    pub of: usize,
    /// Number of dry runs.
    pub tried: usize,
    /// No checkpointing, every block, segments of about √n blocks, and the choice.
    pub rows: Vec<CheckpointRow>,
}

/// A choice of blocks, run dry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRow {
    /// `none`, `blocks`, `sqrt` or `chosen`.
    pub name: String,
    /// Number of blocks that are computed again.
    pub recomputed: usize,
    /// Estimated seconds of a step.
    pub seconds: f64,
    /// Peak of allocated memory. Bytes.
    pub peak_bytes: u64,
    /// Peak of reserved memory. Bytes.
    pub reserved_bytes: u64,
    /// True if it stays within the budget.
    pub fits: bool,
}

impl Checkpoints {
    /// The table, and how the choice was made.
    pub(super) fn sections(&self) -> [Section; 2] {
        let without = self.rows.first().map_or(0.0, |row| row.seconds);
        let rows = self.rows.iter().map(|row| {
            vec![
                Cell::Text(row.name.clone()),
                Cell::Text(format!("{} of {}", row.recomputed, self.of)),
                Cell::Text(if without > 0.0 { format!("{:.2} ×", row.seconds / without) } else { "-".into() }),
                Cell::bytes(Some(row.peak_bytes)),
                Cell::bytes(Some(row.reserved_bytes)),
                Cell::bytes(Some(row.reserved_bytes.saturating_sub(row.peak_bytes))),
                Cell::Text(if row.fits { "yes" } else { "no" }.into()),
            ]
        });
        let columns = ["checkpoint", "blocks", "time", "peak", "reserved", "beyond", "fits"];
        let title = format!("Checkpointing within {}", short(self.budget_bytes));
        let chosen = if self.blocks.is_empty() { "none".into() } else { format!("--checkpoint {}", self.blocks) };
        let how = format!(
            "Chosen: {chosen}. Of all choices of blocks that save so much of what the forward pass keeps it recomputes for the least time, by the card's data sheet. \
             vramlab made {}. PyTorch reserves what stands under \"beyond\" besides tensors.",
            counted(self.tried as u64, "dry run")
        );
        [Section::Table(Table::new(title, &columns, rows.collect())), Section::Note(how)]
    }
}
