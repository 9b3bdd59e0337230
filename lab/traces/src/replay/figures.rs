//! What a policy took for a trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lab_base::error::Result;
use memcore::backend::Meta;
use memcore::memory::{Allocator, AllocatorConfig, Block, DriverEvent, Ledger, OutOfMemory};

use super::policy::{Certificate, Machine, Policy};
use super::run::{Observer, Silent, replay};
use super::trace::{Operation, Trace};

/// At most so many samples over the run.
const SAMPLES: usize = 256;

/// A stretch of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Its last operation.
    pub operation: usize,
    /// The most that was allocated after an operation in it.
    pub allocated_bytes: u64,
    /// The most that was reserved.
    pub reserved_bytes: u64,
    /// The most that was reserved and not in use.
    pub unused_bytes: u64,
    /// The most of it in segments that are partly in use, which cannot be given back.
    pub inactive_split_bytes: u64,
}

/// What was asked of the driver, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCalls {
    /// Segments taken.
    pub segment_allocs: u64,
    /// Segments given back.
    pub segment_frees: u64,
    /// Mappings of pages, and reservations of addresses.
    pub maps: u64,
    /// Pages given back, and reservations given up.
    pub unmaps: u64,
    /// Requests that the driver had no room for.
    pub refusals: u64,
}

impl DriverCalls {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.segment_allocs + self.segment_frees + self.maps + self.unmaps + self.refusals
    }
}

/// What a policy took for a trace. Bytes unless a name says otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The most that was allocated, over the whole run, whatever the program reset.
    pub peak_allocated: u64,
    /// The most that was reserved.
    pub peak_reserved: u64,
    /// At the end.
    pub final_allocated: u64,
    /// At the end.
    pub final_reserved: u64,
    /// The least that was not allocated while `peak_reserved` was reserved: what placement cost.
    pub unused_at_peak: u64,
    /// The operation after which it was.
    pub peak_operation: usize,
    /// The share of reserved memory that was not allocated, from 0 to 1: mean over all operations after which any was.
    pub mean_unused_share: f64,
    /// Free blocks at the end: their sum and the largest.
    pub final_free: u64,
    /// The largest of them.
    pub final_largest_free: u64,
    /// What was asked of the driver.
    pub driver: DriverCalls,
    /// Times that everything cached was given back to try once more.
    pub retries: u64,
    /// Requests that failed.
    pub out_of_memory: u64,
    /// Those of them that the recorded program got.
    pub newly_failed: u64,
    /// The first of those: operation and bytes.
    pub first_failure: Option<(usize, u64)>,
    /// PyTorch's message for the last request that failed, if the policy is PyTorch's.
    pub last_message: Option<String>,
    /// Requests that a plan did not foresee.
    pub unforeseen: u64,
    /// Time of the whole run, without looking at it; the least of several.
    pub elapsed: Duration,
    /// Over the run.
    pub samples: Vec<Sample>,
    /// Of a plan.
    pub certificate: Option<Certificate>,
}

impl Figures {
    /// Mean time of an operation, in nanoseconds.
    pub fn nanoseconds_per_operation(&self, trace: &Trace) -> f64 {
        self.elapsed.as_nanos() as f64 / trace.operations().len().max(1) as f64
    }

    /// The same as a share of `peak_reserved`: 0 to 1.
    pub fn unused_share_at_peak(&self) -> f64 {
        self.unused_at_peak as f64 / self.peak_reserved.max(1) as f64
    }
}

/// Runs a trace on fresh devices: once to look at it, and then to time it.
///
/// # Errors
/// Those of the policy and of the device; a request that fails for lack of memory is a result.
pub fn measure(trace: &Trace, policy: &Policy, machine: &Machine) -> Result<Figures> {
    let mut figures = run_once(trace, policy, machine)?;
    figures.elapsed = time(trace, policy, machine)?;
    Ok(figures)
}

/// Runs a trace on a fresh device, once: all figures but the time.
pub fn run_once(trace: &Trace, policy: &Policy, machine: &Machine) -> Result<Figures> {
    let mut watch = Watch::new(trace);
    let mut opened = policy.open(trace, machine, &mut |event| watch.driver(0, event))?;
    if let Policy::Caching(config) = policy {
        watch.messages = Some((opened.device.clone(), config));
    }
    replay(trace, &mut *opened.allocator, &mut watch)?;
    let mut figures = watch.finish(&*opened.allocator);
    figures.certificate = opened.certificate;
    Ok(figures)
}

/// Runs are repeated until they took so long in all, but not more often than this.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
const MAX_RUNS: usize = 16;

/// The fastest of some runs: what slows the others is not the policy's.
fn time(trace: &Trace, policy: &Policy, machine: &Machine) -> Result<Duration> {
    let (mut fastest, mut all) = (Duration::MAX, Duration::ZERO);
    for _ in 0..MAX_RUNS {
        let mut fresh = policy.open(trace, machine, &mut |_| {})?;
        let start = Instant::now();
        replay(trace, &mut *fresh.allocator, &mut Silent)?;
        let elapsed = start.elapsed();
        fastest = fastest.min(elapsed);
        all += elapsed;
        if all >= LONG_ENOUGH {
            break;
        }
    }
    Ok(fastest)
}

/// Collects the figures.
struct Watch<'a> {
    trace: &'a Trace,
    figures: Figures,
    stretch: usize,
    sample: Sample,
    shares: f64,
    shared: u64,
    /// The size of the request that just failed.
    failed: Option<u64>,
    /// Requests that were served and that the recorded program did not get.
    unforeseen: u64,
    /// What PyTorch's message is made of, where there is one.
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
        // Within one operation memory may be given back and other memory taken: the statistics know the highest point.
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
