//! The figures of a run, row by row, in the columns of PyTorch's own.

use memcore::Device;
use memcore::memory::{CategoryBytes, PeakComposition, Rings};
use serde::Serialize;

/// The names of a row's columns, in order; `vramlab train --json` and recorded PyTorch runs share them.
pub const COLUMNS: [&str; 11] = [
    "label",
    "allocated",
    "max_allocated",
    "reserved",
    "max_reserved",
    "phase_peak_allocated",
    "requested",
    "active",
    "inactive_split",
    "segments",
    "n_alloc_plus_free",
];

/// The memory of a device at one moment, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The moment: `model`, `s0.forward`, …
    pub label: String,
    /// `memory_allocated()`.
    pub allocated: u64,
    /// `max_memory_allocated()`, since the start.
    pub max_allocated: u64,
    /// `memory_reserved()`.
    pub reserved: u64,
    /// `max_memory_reserved()`, since the start.
    pub max_reserved: u64,
    /// The highest `allocated` since the row before.
    pub phase_peak_allocated: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Allocated, or freed and waiting for another stream.
    pub active: u64,
    /// Free parts of split segments.
    pub inactive_split: u64,
    /// Segments taken from the driver.
    pub segments: u64,
    /// Allocations and frees so far.
    pub n_alloc_plus_free: u64,
}

impl Row {
    /// The device's memory now. The next row's phase peak starts here.
    pub fn take(device: &Device, label: impl Into<String>) -> Self {
        let stats = device.stats();
        Self {
            label: label.into(),
            allocated: stats.allocated_bytes.all.current,
            max_allocated: stats.allocated_bytes.all.peak,
            reserved: stats.reserved_bytes.all.current,
            max_reserved: stats.reserved_bytes.all.peak,
            phase_peak_allocated: device.take_phase_peak(),
            requested: stats.requested_bytes.all.current,
            active: stats.active_bytes.all.current,
            inactive_split: stats.inactive_split_bytes.all.current,
            segments: stats.segment.all.current,
            n_alloc_plus_free: stats.allocation.all.allocated + stats.allocation.all.freed(),
        }
    }

    /// The figures in the order of [`COLUMNS`], without the label.
    pub fn figures(&self) -> [u64; 10] {
        [
            self.allocated,
            self.max_allocated,
            self.reserved,
            self.max_reserved,
            self.phase_peak_allocated,
            self.requested,
            self.active,
            self.inactive_split,
            self.segments,
            self.n_alloc_plus_free,
        ]
    }
}

/// What a device's ledger says of a run, at its end.
#[derive(Clone, Debug)]
pub struct Account {
    /// What was allocated at the peak, and who made it.
    pub peak: PeakComposition,
    /// The most that was reserved, in bytes.
    pub reserved_peak: u64,
    /// Allocated bytes by category, now.
    pub by_category: CategoryBytes,
    /// The five figures, now.
    pub rings: Rings,
}

impl Account {
    /// The device's account as it stands.
    pub fn take(device: &Device) -> Self {
        let usage = device.usage();
        Self {
            peak: usage.at_peak(),
            reserved_peak: device.stats().reserved_bytes.all.peak,
            by_category: *usage.by_category(),
            rings: device.rings(),
        }
    }
}

/// As one JSON list, in the order of [`COLUMNS`].
impl Serialize for Row {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut seq = serializer.serialize_seq(Some(COLUMNS.len()))?;
        seq.serialize_element(&self.label)?;
        for figure in self.figures() {
            seq.serialize_element(&figure)?;
        }
        seq.end()
    }
}
