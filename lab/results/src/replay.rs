//! A recording replayed under allocation policies (`vramlab-replay-1`).

use lab_base::figures::{both, counted, grouped, percent, short};
use lab_base::section::{Cell, Chart, Section, Series, Shape, Table};
use lab_traces::replay::{Certificate, Figures, LowerBound, Trace};
use lab_traces::snapshot::Agreement;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, Settings, again};
use super::other_devices::ChosenDevice;
use super::self_check::SelfCheck;

/// A recording, and the memory of each policy. Bytes unless a name says otherwise.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayResult {
    /// The recording.
    pub trace: TraceResult,
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// Lower bound: memory that every allocator needs.
    pub lower_bound: BoundResult,
    /// For a snapshot: whether a replay under its own settings reproduces it.
    pub self_check: Option<SelfCheck>,
    /// For a snapshot: the device, and the others of the file that have memory or a trace.
    #[serde(default)]
    pub device: Option<ChosenDevice>,
    /// Figures of each policy; the first is the main one.
    pub policies: Vec<PolicyResult>,
}

/// A recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceResult {
    /// The file.
    pub name: String,
    /// Format of the recording.
    pub format: String,
    /// Number of operations.
    pub operations: u64,
    /// Number of allocations among them.
    pub allocations: u64,
}

/// Lower bound: memory that every allocator needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BoundResult {
    /// Bytes that are live at the same time.
    pub bytes: u64,
    /// Operation after which they are.
    pub operation: u64,
    /// Number of allocations that they belong to.
    pub allocations: u64,
}

/// Allocated and reserved bytes at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heights {
    /// Bytes in the program's blocks.
    pub allocated: u64,
    /// Bytes in segments.
    pub reserved: u64,
}

/// Figures of a policy that replayed a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Its name.
    pub policy: String,
    /// Peaks.
    pub peak: Heights,
    /// Bytes at the end.
    #[serde(rename = "final")]
    pub last: Heights,
    /// Reserved memory that was not used.
    pub fragmentation: Fragmentation,
    /// Calls to the driver.
    pub driver_calls: Calls,
    /// How often all cached memory was freed for another try.
    pub retries: u64,
    /// Number of requests that failed.
    pub out_of_memory: u64,
    /// Number of failed requests that succeeded in the recorded program.
    pub newly_failed: u64,
    /// The first of those.
    pub first_failure: Option<FirstFailure>,
    /// PyTorch's message for the last request that failed.
    pub last_oom_message: Option<String>,
    /// Mean time of an operation, in nanoseconds.
    pub ns_per_operation: f64,
    /// Meaning of the numbers in a sample.
    pub sample_columns: Vec<String>,
    /// Maximum in each stretch of operations.
    pub samples: Vec<[u64; 5]>,
    /// For a plan: its properties.
    pub plan: Option<PlanResult>,
}

/// Reserved memory that was not used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fragmentation {
    /// Least unallocated bytes while reserved memory was at its peak.
    pub unused_bytes_at_peak: u64,
    /// The same, as a share of the peak from 0 to 1.
    pub unused_share_at_peak: f64,
    /// Operation after which this was the case.
    pub peak_operation: u64,
    /// Share of reserved memory that was not allocated: mean over all operations.
    pub mean_unused_share: f64,
    /// Bytes in free blocks at the end.
    pub final_free_bytes: u64,
    /// Size of the largest free block at the end.
    pub final_largest_free_bytes: u64,
}

/// Calls to the driver, by kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calls {
    /// All calls.
    pub total: u64,
    /// Segments taken.
    pub segment_allocs: u64,
    /// Segments given back.
    pub segment_frees: u64,
    /// Mappings of pages, and reservations of addresses.
    pub maps: u64,
    /// Pages given back, and reservations given up.
    pub unmaps: u64,
    /// Requests that the driver refused for lack of memory.
    pub refusals: u64,
}

/// The first request that failed although it succeeded in the recorded program.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FirstFailure {
    /// Its index in the recording.
    pub operation: u64,
    /// Requested bytes.
    pub bytes: u64,
}

/// Properties of a plan, proven independently of the algorithm that made it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanResult {
    /// Size of the memory in which everything has its place.
    pub bytes: u64,
    /// How it was packed.
    pub packing: String,
    /// Bytes that are live at the same time: no plan is smaller.
    pub bound_bytes: u64,
    /// Operation after which they are.
    pub bound_operation: u64,
    /// Number of allocations that they belong to.
    pub bound_allocations: u64,
    /// True if no allocator can do better.
    pub optimal: bool,
    /// True if the device has enough memory for it.
    pub fits: bool,
    /// Number of requests that the plan did not contain.
    #[serde(rename = "departures")]
    pub unforeseen: u64,
}

impl TraceResult {
    fn from_trace(trace: &Trace) -> Self {
        Self {
            name: trace.name.clone(),
            format: trace.format.into(),
            operations: trace.operations().len() as u64,
            allocations: trace.allocations() as u64,
        }
    }
}

impl PolicyResult {
    fn new(name: &str, figures: &Figures, trace: &Trace) -> Self {
        let calls = &figures.driver;
        let sample = |s: &lab_traces::replay::Sample| {
            [s.operation as u64, s.allocated_bytes, s.reserved_bytes, s.unused_bytes, s.inactive_split_bytes]
        };
        Self {
            policy: name.into(),
            peak: Heights { allocated: figures.peak_allocated, reserved: figures.peak_reserved },
            last: Heights { allocated: figures.final_allocated, reserved: figures.final_reserved },
            fragmentation: Fragmentation {
                unused_bytes_at_peak: figures.unused_at_peak,
                unused_share_at_peak: figures.unused_share_at_peak(),
                peak_operation: figures.peak_operation as u64,
                mean_unused_share: figures.mean_unused_share,
                final_free_bytes: figures.final_free,
                final_largest_free_bytes: figures.final_largest_free,
            },
            driver_calls: Calls {
                total: calls.total(),
                segment_allocs: calls.segment_allocs,
                segment_frees: calls.segment_frees,
                maps: calls.maps,
                unmaps: calls.unmaps,
                refusals: calls.refusals,
            },
            retries: figures.retries,
            out_of_memory: figures.out_of_memory,
            newly_failed: figures.newly_failed,
            first_failure: figures
                .first_failure
                .map(|(operation, bytes)| FirstFailure { operation: operation as u64, bytes }),
            last_oom_message: figures.last_message.clone(),
            ns_per_operation: figures.nanoseconds_per_operation(trace),
            sample_columns: ["operation", "allocated", "reserved", "unused", "inactive_split"]
                .map(String::from)
                .to_vec(),
            samples: figures.samples.iter().map(sample).collect(),
            plan: figures.certificate.as_ref().map(|plan| PlanResult::from_certificate(plan, figures.unforeseen)),
        }
    }

    /// Why it does not fit under a limit; `None` if it fits.
    pub fn misfit(&self) -> Option<String> {
        let Self { policy, newly_failed, peak, .. } = self;
        match self.first_failure {
            Some(FirstFailure { operation, bytes }) => Some(format!(
                "{policy}: does not fit the given limit: {}, the first at operation {operation}, of {bytes} bytes",
                counted(*newly_failed, "failed request")
            )),
            None if self.plan.as_ref().is_some_and(|plan| !plan.fits) => {
                Some(format!("{policy}: does not fit the given limit: the plan takes {} bytes", peak.reserved))
            }
            None => None,
        }
    }

    /// Remarks that the tables do not contain.
    fn remarks(&self, alone: bool) -> Vec<String> {
        let Self { policy, fragmentation, .. } = self;
        let mut out = Vec::new();
        if let Some(FirstFailure { operation, bytes }) = self.first_failure {
            out.push(format!(
                "{policy}: {} that succeeded in the recording; the first is of {}, at operation {}.",
                counted(self.newly_failed, "failed request"),
                both(bytes),
                grouped(operation, ' ')
            ));
        }
        out.extend(
            self.last_oom_message.iter().map(|text| format!("{policy}: the last failure in PyTorch's words: {text}")),
        );
        out.extend(self.plan.as_ref().map(PlanResult::in_words));
        if alone && fragmentation.final_free_bytes > 0 {
            out.push(format!(
                "{policy}: {} of what was reserved was not allocated, on average; {} are free at the end, {} of them in one piece.",
                percent(fragmentation.mean_unused_share),
                both(fragmentation.final_free_bytes),
                both(fragmentation.final_largest_free_bytes)
            ));
        }
        out
    }

    /// A column of the samples, as a series of a chart.
    fn series(&self, name: &str, column: usize, color: usize, shape: Shape) -> Series {
        let points = self.samples.iter().map(|sample| (sample[0] as f64, sample[column] as f64)).collect();
        Series { name: name.into(), points, color, shape }
    }
}

impl PlanResult {
    fn from_certificate(plan: &Certificate, unforeseen: u64) -> Self {
        Self {
            bytes: plan.plan_bytes,
            packing: plan.packing.into(),
            bound_bytes: plan.bound_bytes,
            bound_operation: plan.bound_operation,
            bound_allocations: plan.bound_allocations as u64,
            optimal: plan.is_optimal(),
            fits: plan.fits,
            unforeseen,
        }
    }

    fn in_words(&self) -> String {
        let quality = if self.optimal {
            "as many as the lower bound: no allocator can do better".to_string()
        } else {
            let above = self.bytes as f64 / self.bound_bytes.max(1) as f64 - 1.0;
            format!("{} above the lower bound; the optimum lies between them", percent(above))
        };
        let mut text = format!(
            "planned: every allocation has its place in {} ({}), {quality}. Checked: no two that live together overlap, and \
             the {} of the bound do live together, after operation {}.",
            both(self.bytes),
            self.packing,
            counted(self.bound_allocations, "allocation"),
            grouped(self.bound_operation, ' ')
        );
        if !self.fits {
            text += " The device has no room for it.";
        }
        if self.unforeseen > 0 {
            text += &format!(" {} of other streams lie outside of it.", counted(self.unforeseen, "request"));
        }
        text
    }
}

/// The most policies that can be told apart in a chart.
const MAX_SERIES: usize = 7;

impl ReplayResult {
    /// Makes the result from the figures of these policies for a trace; each policy has a name.
    pub fn new(
        trace: &Trace,
        bound: &LowerBound,
        settings: Settings,
        policies: &[(&str, Figures)],
        self_check: Option<&Agreement>,
    ) -> Self {
        Self {
            trace: TraceResult::from_trace(trace),
            settings,
            lower_bound: BoundResult {
                bytes: bound.bytes,
                operation: bound.operation as u64,
                allocations: bound.allocations,
            },
            self_check: self_check.map(SelfCheck::from),
            device: None,
            policies: policies.iter().map(|(name, figures)| PolicyResult::new(name, figures, trace)).collect(),
        }
    }

    fn answer(&self) -> String {
        let Self { trace, settings, lower_bound: bound, .. } = self;
        let mut text = format!(
            "{}, {} of them allocations ({})",
            counted(trace.operations, "operation"),
            grouped(trace.allocations, ' '),
            trace.format
        );
        if let Some(bytes) = settings.get("memory-limit").and_then(|value| value.as_u64()) {
            text += &format!("; device of {}", both(bytes));
        }
        if let Some(fraction) = settings.get("memory-fraction").and_then(|value| value.as_f64()) {
            text += &format!(", of which {fraction} may be used");
        }
        if let Some(conf) = settings.get("alloc-conf").and_then(|value| value.as_str()).filter(|conf| !conf.is_empty())
        {
            text += &format!("; {conf}");
        }
        format!(
            "{text}.\nLower bound of any allocator: {}, which {} hold after operation {}.",
            both(bound.bytes),
            counted(bound.allocations, "allocation"),
            grouped(bound.operation, ' ')
        )
    }

    /// A table with a line for each policy.
    fn in_short(&self) -> Table {
        let columns = ["policy", "peak reserved", "above bound", "driver calls", "failed", "newly"];
        let row = |policy: &PolicyResult| {
            vec![
                Cell::Text(policy.policy.clone()),
                Cell::Bytes(policy.peak.reserved),
                Cell::percent(policy.peak.reserved as f64 / self.lower_bound.bytes.max(1) as f64 - 1.0),
                Cell::Count(policy.driver_calls.total),
                Cell::Count(policy.out_of_memory),
                Cell::Count(policy.newly_failed),
            ]
        };
        Table::new("", &columns, self.policies.iter().map(row).collect())
    }

    fn memory(&self) -> Table {
        let columns = [
            "policy",
            "peak reserved",
            "above bound",
            "peak allocated",
            "final reserved",
            "final allocated",
            "unused at peak",
        ];
        let row = |policy: &PolicyResult| {
            vec![
                Cell::Text(policy.policy.clone()),
                Cell::Bytes(policy.peak.reserved),
                Cell::percent(policy.peak.reserved as f64 / self.lower_bound.bytes.max(1) as f64 - 1.0),
                Cell::Bytes(policy.peak.allocated),
                Cell::Bytes(policy.last.reserved),
                Cell::Bytes(policy.last.allocated),
                Cell::percent(policy.fragmentation.unused_share_at_peak),
            ]
        };
        Table::new(format!("Memory of {}", self.trace.name), &columns, self.policies.iter().map(row).collect())
    }

    fn driver(&self) -> Table {
        let columns = ["policy", "driver calls", "taken", "given back", "refused", "retries", "failed", "ns per op"];
        let row = |policy: &PolicyResult| {
            let calls = &policy.driver_calls;
            let (taken, given_back) = (calls.segment_allocs + calls.maps, calls.segment_frees + calls.unmaps);
            let (failed, time) = (policy.out_of_memory, policy.ns_per_operation.round() as u64);
            let counts = [calls.total, taken, given_back, calls.refusals, policy.retries, failed, time];
            std::iter::once(Cell::Text(policy.policy.clone())).chain(counts.map(Cell::Count)).collect()
        };
        let title = "Segments and pages requested from the driver; retries, failed requests, time";
        Table::new(title, &columns, self.policies.iter().map(row).collect())
    }

    /// A chart of reserved memory under each policy, and of the recording's own allocated memory.
    fn over_time(&self) -> Chart {
        let drawn = self.policies.iter().take(MAX_SERIES).enumerate();
        let reserved = drawn.map(|(color, policy)| policy.series(&policy.policy, 2, color + 1, Shape::Steps));
        let allocated = self.policies.first().map(|policy| policy.series("allocated", 1, 0, Shape::Area));
        Chart {
            title: "Reserved over the operations, and what of it was allocated".into(),
            x: "operation".into(),
            labels: Vec::new(),
            series: allocated.into_iter().chain(reserved).collect(),
            bytes: true,
            limit: Some(("lower bound".into(), self.lower_bound.bytes as f64)),
        }
    }

    /// A chart of one policy's unused memory.
    fn unused(&self) -> Option<Chart> {
        let [policy] = self.policies.as_slice() else { return None };
        let series = vec![
            policy.series("in split segments", 4, 1, Shape::Steps),
            policy.series("reserved, not allocated", 3, 0, Shape::Steps),
        ];
        let (title, x) = ("Fragmentation over the operations".into(), "operation".into());
        Some(Chart { title, x, labels: Vec::new(), series, bytes: true, limit: None })
    }
}

impl Findings for ReplayResult {
    const SCHEMA: &'static str = "vramlab-replay-1";

    fn title(&self) -> String {
        // With several policies, the one that needs least.
        let takes = |policy: &&PolicyResult| (policy.newly_failed, policy.peak.reserved);
        let Some(best) = self.policies.iter().min_by_key(takes) else { return self.trace.name.clone() };
        let least = if self.policies.len() > 1 { ", the least" } else { "" };
        let above = best.peak.reserved as f64 / self.lower_bound.bytes.max(1) as f64 - 1.0;
        let reserved = short(best.peak.reserved);
        format!("{}: {} reserves {reserved}{least}, {} above the bound", self.trace.name, best.policy, percent(above))
    }

    fn sections(&self) -> Vec<Section> {
        let alone = self.policies.len() == 1;
        let remarks = self.policies.iter().flat_map(|policy| policy.remarks(alone));
        let mut sections = vec![Section::Answer(self.answer()), Section::List(self.in_short())];
        sections.extend(self.self_check.as_ref().map(|check| Section::Note(check.in_short())));
        sections.extend(self.device.as_ref().and_then(ChosenDevice::in_words).map(Section::Note));
        let failing = self.policies.iter().filter(|policy| policy.newly_failed > 0).count() as u64;
        if failing > 0 {
            let policies = match failing {
                1 => "1 policy fails".to_string(),
                n => format!("{n} policies fail"),
            };
            sections.push(Section::Note(format!("{policies} requests that succeeded in the recording.")));
        }
        sections.push(Section::Note("Driver, fragmentation, curves, messages: --full, --html FILE.".into()));
        let mut rest = vec![Section::Table(self.memory()), Section::Table(self.driver())];
        rest.extend(remarks.map(Section::Note));
        rest.push(Section::Chart(self.over_time()));
        rest.extend(self.unused().map(Section::Chart));
        if self.policies.len() > MAX_SERIES {
            rest.push(Section::Note(format!("The first {MAX_SERIES} of {} are drawn.", self.policies.len())));
        }
        rest.extend(self.self_check.as_ref().map(|check| Section::Note(check.in_words())));
        sections.push(Section::Rest(rest));
        sections.push(again(&["replay", &self.trace.name], &self.settings));
        sections
    }

    fn table(&self) -> Option<Table> {
        Some(self.memory())
    }
}
