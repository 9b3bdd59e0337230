//! Rows of memory figures, with the columns of PyTorch's own statistics.

use memcore::Device;
use memcore::memory::{CategoryBytes, PeakComposition, Rings};
use serde::{Deserialize, Serialize};

/// Names of a row's columns, in order; `vramlab train --json` and recorded PyTorch runs share them.
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

/// Memory of a device at one moment, in bytes. In JSON a list in the order of [`COLUMNS`], which is that of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
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
    /// The highest `allocated` since the previous row.
    pub phase_peak_allocated: u64,
    /// Bytes requested, before rounding.
    pub requested: u64,
    /// Bytes allocated, or freed and waiting for another stream.
    pub active: u64,
    /// Free parts of split segments.
    pub inactive_split: u64,
    /// Number of segments taken from the driver.
    pub segments: u64,
    /// Number of allocations and frees so far.
    pub n_alloc_plus_free: u64,
}

impl Row {
    /// Takes a row of the device's memory now. The next row's phase peak starts here.
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

    /// Returns the figures in the order of [`COLUMNS`], without the label.
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

/// Which rows of a run are kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowsKept {
    /// Every row: their memory grows with the number of steps.
    #[default]
    Every,
    /// The first [`ENDS`], the last [`ENDS`], and between them the rows in which allocated and reserved memory first reached their peaks.
    Ends,
}

/// Number of rows kept at each end of a run if not all are.
pub const ENDS: usize = 32;

/// The rows of a run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    kept: RowsKept,
    rows: Vec<Row>,
    /// Number of rows kept between the ends.
    between: usize,
    left_out: usize,
}

impl Log {
    pub(crate) fn new(kept: RowsKept) -> Self {
        Self { kept, ..Self::default() }
    }

    /// Adds a row. Under [`RowsKept::Ends`] this may remove another one.
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
        if self.kept == RowsKept::Ends && self.rows.len() > ENDS + self.between + ENDS {
            self.thin();
        }
    }

    /// Removes the oldest of the last rows, unless it reached a peak before all others.
    fn thin(&mut self) {
        let middle = ENDS..ENDS + self.between + 1;
        let reached_first = |figure: fn(&Row) -> u64| {
            let most = self.rows[..middle.end].iter().map(figure).max();
            self.rows.iter().position(|row| Some(figure(row)) == most)
        };
        let peaks = [reached_first(|row| row.max_allocated), reached_first(|row| row.max_reserved)];
        let stay: Vec<Row> =
            middle.clone().filter(|at| peaks.contains(&Some(*at))).map(|at| self.rows[at].clone()).collect();
        self.between = stay.len();
        self.left_out += middle.len() - stay.len();
        self.rows.splice(middle, stay);
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Number of rows that were taken but not kept.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

/// The ledger's account of a run, at its end.
#[derive(Clone, Debug)]
pub struct Account {
    /// Memory allocated at the peak, and its origins.
    pub peak: PeakComposition,
    /// Peak of reserved memory, in bytes.
    pub reserved_peak: u64,
    /// Bytes allocated at the end, by category.
    pub by_category: CategoryBytes,
    /// The five figures at the end.
    pub rings: Rings,
}

impl Account {
    /// Takes the device's account now.
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

/// Names the origin of an event as a profiler would: `addmm`, `AddmmBackward0>mm`. A free by the engine around a node is `AddmmBackward0.`.
pub fn op_name(origin: &memcore::memory::Origin, free: bool) -> String {
    let label = memcore::context::label(origin.node, origin.op);
    if free && origin.node == Some(origin.op) { label + "." } else { label }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: usize, max_allocated: u64, max_reserved: u64) -> Row {
        Row { label: at.to_string(), max_allocated, max_reserved, ..Row::default() }
    }

    /// Returns the rows whose labels are kept when the peaks are reached in these rows.
    fn kept(taken: usize, allocated_in: usize, reserved_in: usize) -> (Vec<usize>, usize) {
        let mut log = Log::new(RowsKept::Ends);
        for at in 0..taken {
            log.push(row(at, 1 + u64::from(at >= allocated_in), 1 + u64::from(at >= reserved_in)));
        }
        (log.rows().iter().map(|row| row.label.parse().unwrap()).collect(), log.left_out())
    }

    #[test]
    fn a_row_is_a_list_of_its_columns() {
        let text = r#"["s0.forward",1,2,3,4,5,6,7,8,9,10]"#;
        let row: Row = serde_json::from_str(text).unwrap();
        assert_eq!(row.figures(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_value::<Row>(serde_json::to_value(&row).unwrap()).unwrap(), row);
        for wrong in [r#"["s0"]"#, r#"["s0",1,2,3,4,5,6,7,8,9,10,11]"#, r#"[0,1,2,3,4,5,6,7,8,9,10]"#] {
            assert!(serde_json::from_str::<Row>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_ends_and_the_peaks_of_a_long_run_are_kept() {
        let ends = |taken: usize, between: &[usize]| -> (Vec<usize>, usize) {
            let all: Vec<usize> = (0..ENDS).chain(between.iter().copied()).chain(taken - ENDS..taken).collect();
            let left_out = taken - all.len();
            (all, left_out)
        };
        assert_eq!(kept(5, 0, 0), ((0..5).collect(), 0));
        assert_eq!(kept(2 * ENDS, 40, 50), ((0..2 * ENDS).collect(), 0));
        assert_eq!(kept(1000, 3, 0), ends(1000, &[]));
        assert_eq!(kept(1000, 500, 700), ends(1000, &[500, 700]));
        assert_eq!(kept(1000, 700, 500), ends(1000, &[500, 700]));
        assert_eq!(kept(1000, 500, 500), ends(1000, &[500]));
        assert_eq!(kept(1000, 990, 2), ends(1000, &[]));
        let mut every = Log::new(RowsKept::Every);
        (0..1000).for_each(|at| every.push(row(at, 1, 1)));
        assert_eq!((every.rows().len(), every.left_out()), (1000, 0));
    }
}
