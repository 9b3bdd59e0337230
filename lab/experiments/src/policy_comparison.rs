//! One program under many allocation policies.

use lab_base::error::Result;
use lab_base::section::{Cell, Table};
use lab_traces::replay::{Figures, LowerBound, Machine, Operation, Policy, Trace, measure};
use memcore::Device;
use memcore::memory::AllocatorConfig;

use super::tables::{table, text};
use super::{Measurement, Setup};

/// An allocation policy under the name that experiments use.
pub(super) struct Contender {
    /// Name in tables and rows.
    pub(super) name: &'static str,
    policy: &'static str,
    settings: &'static str,
}

/// PyTorch's allocator with its default settings.
pub(super) const CACHING: &str = "caching";
/// PyTorch's allocator with expandable segments.
pub(super) const EXPANDABLE: &str = "expandable";
/// PyTorch's allocator with a limit on the size of blocks that are split.
pub(super) const MAX_SPLIT: &str = "max_split 20";
/// Every block directly from the driver.
pub(super) const DIRECT: &str = "direct";
/// A plan made with knowledge of the whole run.
pub(super) const PLANNED: &str = "planned";

/// All policies, in the order of the tables.
pub(super) const CONTENDERS: &[Contender] = &[
    Contender { name: CACHING, policy: "caching", settings: "" },
    Contender { name: EXPANDABLE, policy: "caching", settings: "expandable_segments:True" },
    Contender { name: MAX_SPLIT, policy: "caching", settings: "max_split_size_mb:20" },
    Contender { name: "roundup 4", policy: "caching", settings: "roundup_power2_divisions:4" },
    Contender { name: DIRECT, policy: "direct", settings: "" },
    Contender { name: "bfc", policy: "bfc", settings: "" },
    Contender { name: "buddy", policy: "buddy", settings: "" },
    Contender { name: "tlsf", policy: "tlsf", settings: "" },
    Contender { name: PLANNED, policy: "planned", settings: "" },
];

impl Contender {
    pub(super) fn policy(&self) -> Result<Policy> {
        Policy::by_name(self.policy, &AllocatorConfig::parse(self.settings)?)
    }
}

/// Figures of all policies for one program.
pub(super) struct PolicyComparison {
    pub(super) trace: Trace,
    /// Bytes that no policy can go below.
    pub(super) bound: LowerBound,
    pub(super) taken: Vec<(&'static str, Figures)>,
}

impl PolicyComparison {
    /// Runs every policy on a device without a limit.
    pub(super) fn run(trace: Trace) -> Result<Self> {
        let bound = trace.lower_bound();
        let machine = Machine::default();
        let take = |contender: &Contender| Ok((contender.name, measure(&trace, &contender.policy()?, &machine)?));
        let taken = CONTENDERS.iter().map(take).collect::<Result<_>>()?;
        Ok(Self { trace, bound, taken })
    }

    /// Returns the figures of one policy.
    pub(super) fn figures_of(&self, name: &str) -> Option<&Figures> {
        self.taken.iter().find(|(other, _)| *other == name).map(|(_, figures)| figures)
    }

    /// Returns the peak of reserved bytes under one policy.
    pub(super) fn reserved(&self, name: &str) -> u64 {
        self.figures_of(name).map_or(0, |figures| figures.peak_reserved)
    }

    /// Ratio of a policy's reserved bytes to the bound: 1.25 is a quarter above.
    pub(super) fn ratio(&self, name: &str) -> f64 {
        self.reserved(name) as f64 / self.bound.bytes.max(1) as f64
    }

    /// Returns one row per policy. Figures that follow from the program alone are predicted. Without a cache, exactly
    /// the live bytes are reserved, by one driver call for each allocation and one for each free.
    pub(super) fn rows(&self, program: &str) -> Vec<Measurement> {
        let frees = |operation: &&Operation| matches!(operation, Operation::Free { .. });
        let frees = self.trace.operations().iter().filter(frees).count();
        let row = |(name, figures): &(&'static str, Figures)| {
            let mut m = Measurement::with_setting([("program", program.into()), ("policy", (*name).into())]);
            m.measure("reserved_bytes", figures.peak_reserved);
            if *name == DIRECT {
                m.predict("reserved_bytes", self.bound.bytes);
                m.measure("driver_calls", figures.driver.total());
                m.predict("driver_calls", (self.trace.allocations() + frees) as u64);
            }
            m
        };
        self.taken.iter().map(row).collect()
    }

    /// Makes a table of the policies side by side.
    pub(super) fn table(&self, title: &str) -> Table {
        let columns = ["policy", "reserved", "above bound", "unused at peak", "driver calls", "ns per op"];
        let row = |(name, figures): &(&'static str, Figures)| {
            vec![
                text(*name),
                Cell::Bytes(figures.peak_reserved),
                text(format!("{:.1} %", (self.ratio(name) - 1.0) * 100.0)),
                Cell::Bytes(figures.unused_at_peak),
                Cell::Count(figures.driver.total()),
                Cell::Count(figures.nanoseconds_per_operation(&self.trace).round() as u64),
            ]
        };
        let mut rows: Vec<Vec<Cell>> = self.taken.iter().map(row).collect();
        let dash = || text("-");
        rows.push(vec![text("lower bound"), Cell::Bytes(self.bound.bytes), dash(), dash(), dash(), dash()]);
        table(title, &columns, rows)
    }
}

/// Opens a fresh device that records its history.
pub(super) fn recording_device(setup: &Setup<'_>) -> Result<Device> {
    let device = (setup.open)()?;
    device.set_history(true);
    Ok(device)
}

/// Returns the recorded operations of a device so far.
pub(super) fn recorded(device: &Device, name: &str) -> Result<Trace> {
    let history = device.with_ledger(|ledger| ledger.history().to_vec());
    Trace::of_history(name, &history)
}
