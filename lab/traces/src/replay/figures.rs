//! Figures of a policy that replayed a trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lab_base::error::Result;
use memcore::backend::Meta;
use memcore::memory::{Allocator, AllocatorConfig, Block, DriverEvent, Ledger, OutOfMemory};

use super::policy::{Certificate, Machine, Policy};
use super::run::{Observer, Silent};
use super::trace::{Operation, Trace};

/// Largest number of samples over the run.
const SAMPLES: usize = 256;

/// Peaks over a range of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Last operation of the range.
    pub operation: usize,
    /// Peak of allocated bytes in the range.
    pub allocated_bytes: u64,
    /// Peak of reserved bytes.
    pub reserved_bytes: u64,
    /// Peak of bytes reserved and not in use.
    pub unused_bytes: u64,
    /// Peak of unused bytes in partly used segments, which cannot be returned to the driver.
    pub inactive_split_bytes: u64,
}

/// Calls of the driver, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCalls {
    /// Segments allocated.
    pub segment_allocs: u64,
    /// Segments freed.
    pub segment_frees: u64,
    /// Mappings of pages, and reservations of address ranges.
    pub maps: u64,
    /// Pages unmapped, and address ranges freed.
    pub unmaps: u64,
    /// Requests that the driver refused for lack of memory.
    pub refusals: u64,
}

impl DriverCalls {
    /// Sum of all calls.
    pub fn total(&self) -> u64 {
        self.segment_allocs + self.segment_frees + self.maps + self.unmaps + self.refusals
    }
}

/// Figures of a policy that replayed a trace. Bytes unless a name says otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Peak of allocated bytes over the whole run, even if the program reset its statistics.
    pub peak_allocated: u64,
    /// Peak of reserved bytes over the whole run.
    pub peak_reserved: u64,
    /// Allocated bytes at the end.
    pub final_allocated: u64,
    /// Reserved bytes at the end.
    pub final_reserved: u64,
    /// Least bytes not allocated while `peak_reserved` was reserved: the cost of placement.
    pub unused_at_peak: u64,
    /// Operation after which `unused_at_peak` was measured.
    pub peak_operation: usize,
    /// The share of reserved memory that was not allocated, from 0 to 1: mean over all operations after which any was.
    pub mean_unused_share: f64,
    /// Sum of the free blocks at the end.
    pub final_free: u64,
    /// Largest free block at the end.
    pub final_largest_free: u64,
    /// Calls of the driver.
    pub driver: DriverCalls,
    /// Number of times that all cached memory was returned to the driver to retry a request.
    pub retries: u64,
    /// Requests that failed.
    pub out_of_memory: u64,
    /// Requests that failed here and that the recorded program was granted.
    pub newly_failed: u64,
    /// First request counted in `newly_failed`: operation and bytes.
    pub first_failure: Option<(usize, u64)>,
    /// PyTorch's message for the last request that failed, if the policy is PyTorch's.
    pub last_message: Option<String>,
    /// Requests that a plan did not contain.
    pub unforeseen: u64,
    /// Time of the whole run without an observer; the least of several runs.
    pub elapsed: Duration,
    /// Samples over the run.
    pub samples: Vec<Sample>,
    /// Certificate of a plan.
    pub certificate: Option<Certificate>,
}

impl Figures {
    /// Mean time of an operation, in nanoseconds.
    pub fn nanoseconds_per_operation(&self, trace: &Trace) -> f64 {
        self.elapsed.as_nanos() as f64 / trace.operations().len().max(1) as f64
    }

    /// `unused_at_peak` as a share of `peak_reserved`, from 0 to 1.
    pub fn unused_share_at_peak(&self) -> f64 {
        self.unused_at_peak as f64 / self.peak_reserved.max(1) as f64
    }
}

/// Runs a trace on fresh devices: once to collect the figures, then again to time it.
///
/// # Errors
/// Those of the policy and of the device. A request that fails for lack of memory is a result, not an error.
pub fn measure(trace: &Trace, policy: &Policy, machine: &Machine) -> Result<Figures> {
    let mut figures = run_once(trace, policy, machine)?;
    figures.elapsed = time(trace, policy, machine)?;
    Ok(figures)
}

/// Runs a trace on a fresh device, once: all figures except the time.
pub fn run_once(trace: &Trace, policy: &Policy, machine: &Machine) -> Result<Figures> {
    let mut watch = Watch::new(trace);
    let mut opened = policy.open(trace, machine, &mut |event| watch.driver(0, event))?;
    if let Policy::Caching(config) = policy {
        watch.messages = Some((opened.device.clone(), config));
    }
    opened.replay(trace, &mut watch)?;
    let mut figures = watch.finish(&*opened.allocator);
    figures.certificate = opened.certificate;
    Ok(figures)
}

/// Runs are repeated until they took so long in all, but not more often than this.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
const MAX_RUNS: usize = 16;

/// Returns the time of the fastest run: what slows the others is not the policy.
fn time(trace: &Trace, policy: &Policy, machine: &Machine) -> Result<Duration> {
    let (mut fastest, mut all) = (Duration::MAX, Duration::ZERO);
    for _ in 0..MAX_RUNS {
        let mut fresh = policy.open(trace, machine, &mut |_| {})?;
        let start = Instant::now();
        fresh.replay(trace, &mut Silent)?;
        let elapsed = start.elapsed();
        fastest = fastest.min(elapsed);
        all += elapsed;
        if all >= LONG_ENOUGH {
            break;
        }
    }
    Ok(fastest)
}

/// Observer that collects the figures.
struct Watch<'a> {
    trace: &'a Trace,
    figures: Figures,
    stretch: usize,
    sample: Sample,
    shares: f64,
    shared: u64,
    /// The size of the request that just failed.
    failed: Option<u64>,
    /// Requests served here that the recorded program was not granted.
    unforeseen: u64,
    /// Sources of PyTorch's message, for a policy that has one.
    messages: Option<(Arc<Meta>, &'a AllocatorConfig)>,
}

impl<'a> Watch<'a> {
    fn new(trace: &'a Trace) -> Self {
        let stretch = trace.operations().len().div_ceil(SAMPLES).max(1);
        let (figures, sample) = (Figures::default(), Sample::default());
        Self { trace, figures, stretch, sample, shares: 0.0, shared: 0, failed: None, unforeseen: 0, messages: None }
    }

    fn message<A: Allocator + ?Sized>(&self, bytes: u64, allocator: &A) -> Option<String> {
        let (device, config) = self.messages.as_ref()?;
        let report = OutOfMemory::new(bytes, allocator, &Ledger::new(), &**device);
        Some(report.torch_message(0, config.version, config.expandable_segments))
    }

    fn finish<A: Allocator + ?Sized>(self, allocator: &A) -> Figures {
        let (stats, snapshot) = (allocator.stats(), allocator.snapshot());
        let free = snapshot.reserved_bytes() - snapshot.segments.iter().map(|s| s.active_bytes()).sum::<u64>();
        Figures {
            peak_allocated: self.figures.peak_allocated.max(stats.allocated_bytes.all.peak),
            final_allocated: stats.allocated_bytes.all.current,
            final_reserved: stats.reserved_bytes.all.current,
            mean_unused_share: self.shares / self.shared.max(1) as f64,
            final_free: free,
            final_largest_free: snapshot.largest_inactive_bytes(),
            retries: stats.num_alloc_retries,
            out_of_memory: stats.num_ooms,
            unforeseen: match allocator.name() {
                "planned" => stats.segment.all.allocated.saturating_sub(1 + self.unforeseen),
                _ => 0,
            },
            ..self.figures
        }
    }
}

impl Observer for Watch<'_> {
    fn driver(&mut self, _operation: usize, event: DriverEvent) {
        let calls = &mut self.figures.driver;
        match event {
            DriverEvent::SegmentAlloc { .. } => calls.segment_allocs += 1,
            DriverEvent::SegmentFree { .. } => calls.segment_frees += 1,
            DriverEvent::Reserve { .. } => calls.maps += 1,
            DriverEvent::Release { .. } => calls.unmaps += 1,
            DriverEvent::Map { bytes, page_bytes, .. } => calls.maps += bytes / page_bytes.max(1),
            DriverEvent::Unmap { bytes, page_bytes, .. } => calls.unmaps += bytes / page_bytes.max(1),
            DriverEvent::Refused { .. } | DriverEvent::MapRefused { .. } => calls.refusals += 1,
            DriverEvent::ExpandableUnsupported => {}
        }
    }

    fn allocated(&mut self, operation: usize, block: Option<&Block>) {
        if let (Some(_), Operation::Allocate { served: false, .. }) = (block, self.trace.operations()[operation]) {
            self.unforeseen += 1;
        }
        if let (None, Operation::Allocate { bytes: bytes @ 1.., served, .. }) =
            (block, self.trace.operations()[operation])
        {
            self.failed = Some(bytes);
            if served {
                self.figures.newly_failed += 1;
                self.figures.first_failure.get_or_insert((operation, bytes));
            }
        }
    }

    fn after<A: Allocator + ?Sized>(&mut self, operation: usize, allocator: &A) {
        if let Some(bytes) = self.failed.take() {
            self.figures.last_message = self.message(bytes, allocator);
        }
        let stats = allocator.stats();
        let (allocated, reserved) = (stats.allocated_bytes.all.current, stats.reserved_bytes.all.current);
        let unused = reserved - allocated;
        let figures = &mut self.figures;
        figures.peak_allocated = figures.peak_allocated.max(allocated);
        // One operation may both return and take memory: only the statistics know the peak within it.
        let peak = match self.trace.operations()[operation] {
            Operation::ResetPeak => reserved,
            _ => stats.reserved_bytes.all.peak.max(reserved),
        };
        if peak > figures.peak_reserved {
            (figures.peak_reserved, figures.unused_at_peak) = (peak, peak - allocated.min(peak));
            figures.peak_operation = operation;
        } else if reserved == figures.peak_reserved && unused < figures.unused_at_peak {
            (figures.unused_at_peak, figures.peak_operation) = (unused, operation);
        }
        if reserved > 0 {
            self.shares += unused as f64 / reserved as f64;
            self.shared += 1;
        }
        let sample = &mut self.sample;
        sample.operation = operation;
        sample.allocated_bytes = sample.allocated_bytes.max(allocated);
        sample.reserved_bytes = sample.reserved_bytes.max(reserved);
        sample.unused_bytes = sample.unused_bytes.max(unused);
        sample.inactive_split_bytes = sample.inactive_split_bytes.max(stats.inactive_split_bytes.all.current);
        if (operation + 1).is_multiple_of(self.stretch) || operation + 1 == self.trace.operations().len() {
            figures.samples.push(std::mem::take(sample));
        }
    }
}
