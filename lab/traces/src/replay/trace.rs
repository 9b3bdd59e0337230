//! Trace: a program's operations on memory.

use std::collections::HashMap;
use std::sync::Arc;

use lab_base::error::{Error, Result};
use memcore::memory::planned::{ALIGNMENT_BYTES, Lifetime};
use memcore::memory::{AllocId, AllocatorConfig, Event, Snapshot, TorchVersion};

/// One operation of a program. Allocations are named by their number: the k-th [`Allocate`](Self::Allocate), from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An allocation.
    Allocate {
        /// Requested bytes. 0: nothing is allocated, as in PyTorch.
        bytes: u64,
        /// Stream.
        stream: u16,
        /// Private pool, as of a CUDA graph; 0 for none.
        pool: u16,
        /// Whether the request was granted in the recording. If not, the program cannot have used the memory: a policy that serves such a request
        /// gets it back at once.
        served: bool,
    },
    /// A free.
    Free {
        /// Number of the allocation.
        allocation: u32,
    },
    /// `empty_cache()`
    EmptyCache,
    /// `reset_peak_memory_stats()`
    ResetPeak,
    /// Another stream uses an allocation (`record_stream`).
    RecordStream {
        /// Number of the allocation.
        allocation: u32,
        /// The stream.
        stream: u16,
    },
    /// From here on, the work that pending frees wait for does not finish.
    HoldEvents,
    /// All work that pending frees wait for so far finishes.
    CompleteEvents,
}

/// The recording's allocator and device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Allocator settings, in the syntax of `PYTORCH_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Memory of the device in bytes.
    pub capacity_bytes: Option<u64>,
    /// Share of the device's memory that the process might use.
    pub memory_fraction: Option<f64>,
    /// PyTorch release that was recorded.
    pub version: TorchVersion,
}

/// Memory of the recording's allocator when the recording began, and where its driver put what came later.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Segments and blocks. The first allocations of the program are its blocks that are in use, in order of address.
    pub memory: Snapshot,
    /// Address and bytes of each segment that the driver gave later, in order.
    pub later: Vec<(u64, u64)>,
    /// Bytes of a page of the large pool under the recorded settings.
    pub page_bytes: u64,
}

impl Start {
    /// True if it has segments that grow by pages.
    fn grows(&self) -> bool {
        self.memory.segments.iter().any(|segment| segment.expandable)
    }
}

/// A recorded program, with its allocator and device.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Name of the recording, else of its file.
    pub name: String,
    /// Format of the file.
    pub format: &'static str,
    /// Allocator and device.
    pub settings: Settings,
    /// Where the recording's allocator began; `None` for an empty one, and if it is not known.
    pub start: Option<Arc<Start>>,
    operations: Vec<Operation>,
    allocations: usize,
}

/// Largest sum of bytes that live at one time: no allocator takes less from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowerBound {
    /// Sum of the live requests, each rounded up to 512 bytes.
    pub bytes: u64,
    /// First operation after which they live.
    pub operation: usize,
    /// Number of live allocations then.
    pub allocations: u64,
}

impl Trace {
    /// Makes a trace from operations.
    ///
    /// # Errors
    /// [`Error::Usage`] naming an operation that frees or uses an allocation that does not live.
    pub fn new(name: impl Into<String>, settings: Settings, operations: Vec<Operation>) -> Result<Self> {
        let (name, format) = (name.into(), "program");
        let allocations = check(&operations).map_err(|fault| fault.error(&name))?;
        Ok(Self { name, format, settings, start: None, operations, allocations })
    }

    /// Makes a trace from a device's history, as a new program from its first event on.
    ///
    /// # Errors
    /// [`Error::Usage`] for a history that frees what it did not allocate: one that began in the middle of a run.
    pub fn of_history(name: impl Into<String>, history: &[Event]) -> Result<Self> {
        let mut numbers: HashMap<AllocId, u32> = HashMap::new();
        let mut operations = Vec::new();
        let mut made = 0;
        for event in history {
            match *event {
                Event::Alloc { id, requested_bytes: bytes, .. } => {
                    numbers.insert(id, made);
                    made += 1;
                    operations.push(Operation::Allocate { bytes, stream: 0, pool: 0, served: true });
                }
                Event::Oom { requested_bytes: bytes, .. } => {
                    made += 1;
                    operations.push(Operation::Allocate { bytes, stream: 0, pool: 0, served: false });
                }
                Event::Free { id, .. } => {
                    operations.push(Operation::Free { allocation: numbers.get(&id).copied().unwrap_or(u32::MAX) });
                }
                Event::ResetPeak => operations.push(Operation::ResetPeak),
                _ => {}
            }
        }
        Self::new(name, Settings::default(), operations)
    }

    /// Replaces the name by the one that the recording gives itself, and sets its format.
    pub(super) fn said_to_be(self, name: String, format: &'static str) -> Self {
        Self { name, format, ..self }
    }

    /// True unless the recorded state has pages of another size than these settings: then a replay begins empty, and reserves too little.
    pub fn resumes_under(&self, config: &AllocatorConfig) -> bool {
        self.start.as_ref().is_none_or(|start| start.page_bytes == config.large_segment_bytes || !start.grows())
    }

    /// Returns the trace with the state in which PyTorch's allocator begins it.
    pub fn starting(self, start: Option<Arc<Start>>) -> Self {
        Self { start, ..self }
    }

    /// Operations, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Number of allocations tried, failed ones included.
    pub fn allocations(&self) -> usize {
        self.allocations
    }

    /// Returns the largest sum of bytes live at one time, of requests granted in the recording.
    pub fn lower_bound(&self) -> LowerBound {
        let mut sizes: Vec<u64> = Vec::with_capacity(self.allocations);
        let (mut best, mut live, mut count) = (LowerBound::default(), 0, 0);
        for (at, operation) in self.operations.iter().enumerate() {
            match *operation {
                Operation::Allocate { bytes, served, .. } => {
                    let bytes = if served { rounded(bytes) } else { 0 };
                    sizes.push(bytes);
                    live += bytes;
                    count += u64::from(bytes > 0);
                    if live > best.bytes {
                        best = LowerBound { bytes: live, operation: at, allocations: count };
                    }
                }
                Operation::Free { allocation } => {
                    let bytes = sizes[allocation as usize];
                    live -= bytes;
                    count -= u64::from(bytes > 0);
                }
                _ => {}
            }
        }
        best
    }

    /// Returns the lifetime of each allocation in operations, from which a plan is made. Requests that were not granted in the recording take no
    /// bytes.
    pub fn lifetimes(&self) -> Vec<Lifetime> {
        let mut lifetimes: Vec<Lifetime> = Vec::with_capacity(self.allocations);
        for (at, operation) in self.operations.iter().enumerate() {
            let at = at as u64;
            match *operation {
                Operation::Allocate { bytes, served, .. } => {
                    let (bytes, to) = if served && bytes > 0 { (bytes, u64::MAX) } else { (0, at + 1) };
                    lifetimes.push(Lifetime { bytes, from: at, to });
                }
                Operation::Free { allocation } => {
                    let lifetime = &mut lifetimes[allocation as usize];
                    lifetime.to = lifetime.to.min(at);
                }
                _ => {}
            }
        }
        lifetimes
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT_BYTES)
}

/// Fault in an operation.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) operation: usize,
    pub(super) problem: String,
}

impl Fault {
    pub(crate) fn new(operation: usize, problem: impl Into<String>) -> Self {
        Self { operation, problem: problem.into() }
    }

    /// Turns the fault into the error of a file or program called `name`.
    pub(super) fn error(self, name: &str) -> Error {
        Error::usage(name, format!("operation {}: {}", self.operation, self.problem))
    }
}

/// Largest request: the sum of as many as there may be stays within 64 bits.
const MAX_REQUEST_BYTES: u64 = 1 << 62;

/// Checks that every operation concerns a live allocation; returns the number of allocations.
fn check(operations: &[Operation]) -> Result<usize, Fault> {
    let mut lives: Vec<bool> = Vec::new();
    let mut held_bytes = 0u64;
    let known = |lives: &[bool], at: usize, allocation: u32, verb: &str| {
        let problem = match lives.get(allocation as usize) {
            Some(true) => return Ok(()),
            Some(false) => format!("{verb} allocation {allocation}, which was freed before"),
            None => format!("{verb} allocation {allocation}, but only {} were made until then", lives.len()),
        };
        Err(Fault::new(at, problem))
    };
    for (at, operation) in operations.iter().enumerate() {
        match *operation {
            Operation::Allocate { bytes, .. } => {
                held_bytes = held_bytes.saturating_add(bytes).saturating_add(ALIGNMENT_BYTES);
                if held_bytes > MAX_REQUEST_BYTES {
                    return Err(Fault::new(at, format!("requests {bytes} bytes: all together more than 2^62")));
                }
                lives.push(true);
            }
            Operation::Free { allocation } => {
                known(&lives, at, allocation, "frees")?;
                lives[allocation as usize] = false;
            }
            Operation::RecordStream { allocation, .. } => known(&lives, at, allocation, "records a stream on")?,
            _ => {}
        }
    }
    Ok(lives.len())
}
