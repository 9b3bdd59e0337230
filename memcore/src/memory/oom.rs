//! Who held the memory when it ran out.

use std::fmt;

use super::allocator::{AllocationFailure, Allocator};
use super::caching::TorchVersion;
use super::category::Category;
use super::ledger::Ledger;
use super::rings::Rings;
use super::usage::CategoryBytes;
use crate::backend::DeviceMemory;

/// How many scopes a report names.
const TOP_SCOPES: usize = 5;

/// Whether anything could have helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request exceeds what the device, or the limit set on it, can ever give.
    Hopeless,
    /// Clients hold so much that the rest is smaller than the request.
    Full,
    /// Enough bytes are free, in the cache and on the device, but not in one piece.
    Fragmented,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Hopeless => "hopeless",
            Verdict::Full => "full",
            Verdict::Fragmented => "fragmented",
        })
    }
}

/// An allocation failed after everything that could be given back was. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub requested_bytes: u64,
    /// The size of the block that was looked for.
    pub block_bytes: u64,
    /// The size of the segment that the driver was asked for.
    pub segment_bytes: u64,
    /// Whether anything could have helped.
    pub verdict: Verdict,
    /// What the driver says is free.
    pub free_bytes: Option<u64>,
    /// What the driver says there is.
    pub total_bytes: Option<u64>,
    /// The most that the allocator was allowed to take, where a limit was set.
    pub allowed_bytes: Option<u64>,
    /// The five rings at that moment.
    pub rings: Rings,
    /// What clients held, by category.
    pub by_category: CategoryBytes,
    /// The scopes that held most, by path, most first.
    pub top_scopes: Vec<(String, u64)>,
    /// What emptying the cache gave back, to no avail.
    pub released_bytes: u64,
    /// Free blocks of private pools, which serve nobody else.
    pub private_cached_bytes: u64,
    /// The largest request that would have been served.
    pub largest_fit_bytes: u64,
    /// Refused ahead of the driver, because it would exceed the configured fraction of the device.
    pub preemptive: bool,
}

impl OutOfMemory {
    /// The report on the allocator's last failure. `requested_bytes` stands in where the allocator keeps no record.
    pub fn new<A>(requested_bytes: u64, allocator: &A, ledger: &Ledger, memory: &dyn DeviceMemory) -> Self
    where
        A: Allocator + ?Sized,
    {
        let bare = AllocationFailure {
            requested_bytes,
            block_bytes: requested_bytes,
            segment_bytes: requested_bytes,
            ..AllocationFailure::default()
        };
        let failure = allocator.last_failure().copied().unwrap_or(bare);
        let info = memory.memory_info();
        let stats = allocator.stats();
        let usage = ledger.usage();
        let rings = Rings::now(stats, info.map(|info| info.total_bytes.saturating_sub(info.free_bytes)));
        let mut top_scopes: Vec<_> =
            usage.scopes().map(|(scope, bytes)| (ledger.scope_path(scope).to_string(), bytes.iter().sum())).collect();
        top_scopes.sort_by(|a: &(String, u64), b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        top_scopes.truncate(TOP_SCOPES);
        Self {
            requested_bytes: failure.requested_bytes,
            block_bytes: failure.block_bytes,
            segment_bytes: failure.segment_bytes,
            verdict: verdict(&failure, &rings, memory),
            free_bytes: info.map(|info| info.free_bytes),
            total_bytes: info.map(|info| info.total_bytes),
            allowed_bytes: failure.allowed_bytes,
            rings,
            by_category: *usage.by_category(),
            top_scopes,
            released_bytes: failure.released_bytes,
            private_cached_bytes: failure.private_cached_bytes,
            largest_fit_bytes: failure.largest_fit_bytes,
            preemptive: failure.preemptive,
        }
    }

    /// The sentence of `torch.OutOfMemoryError`, for comparison with a run of PyTorch; without what NVML says of
    /// processes. `expandable`: whether expandable segments are on, which later releases answer with another hint.
    pub fn torch_message(&self, device: usize, version: TorchVersion, expandable: bool) -> String {
        let head = "CUDA out of memory. ";
        if self.preemptive {
            let why = "Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit.";
            return format!("{head}{why} Requested size: {}", TorchSize(self.block_bytes));
        }
        if self.requested_bytes >= 1 << 60 {
            return format!("{head}Tried to allocate more than 1EB memory.");
        }
        let private = self.private_cached_bytes;
        let allocated = self.rings.allocated_bytes + private;
        let mut text = format!(
            "{head}Tried to allocate {}. GPU {device} has a total capacity of {} of which {} is free. ",
            TorchSize(self.segment_bytes),
            TorchSize(self.total_bytes.unwrap_or(0)),
            TorchSize(self.free_bytes.unwrap_or(0)),
        );
        if let Some(allowed) = self.allowed_bytes {
            text += &format!("{} allowed; ", TorchSize(allowed));
        }
        text += &format!("Of the allocated memory {} is allocated by PyTorch, ", TorchSize(allocated));
        if private > 0 {
            text += &format!("with {} allocated in private pools (e.g., CUDA Graphs), ", TorchSize(private));
        }
        let unallocated = self.rings.reserved_bytes.saturating_sub(allocated);
        text += &format!("and {} is reserved by PyTorch but unallocated.", TorchSize(unallocated));
        text += if expandable && version >= TorchVersion::V2_15 { EXPANDABLE_HINT } else { FRAGMENTATION_HINT };
        text
    }
}

const FRAGMENTATION_HINT: &str = " If reserved but unallocated memory is large try setting \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  \
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";

const EXPANDABLE_HINT: &str = " expandable_segments is enabled. If instead the process is running out of virtual address \
    space (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of device memory, times the \
    number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / \
    expandable_segments_reserve_by_class.";

/// Bytes as PyTorch prints them: a unit only above 1024 of the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorchSize(pub u64);

impl fmt::Display for TorchSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..=1024 => write!(f, "{} bytes", self.0),
            1025..=0x10_0000 => write!(f, "{:.2} KiB", bytes / 1024.0),
            0x10_0001..=0x4000_0000 => write!(f, "{:.2} MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.2} GiB", bytes / 1_073_741_824.0),
        }
    }
}

fn verdict(failure: &AllocationFailure, rings: &Rings, memory: &dyn DeviceMemory) -> Verdict {
    let info = memory.memory_info();
    let allowed = failure.allowed_bytes.unwrap_or(u64::MAX);
    let most = memory.limits().max_segment_bytes.min(info.map_or(u64::MAX, |info| info.total_bytes)).min(allowed);
    if failure.segment_bytes > most {
        return Verdict::Hopeless;
    }
    let cached = rings.reserved_bytes.saturating_sub(rings.active_bytes);
    let obtainable = info.map_or(0, |info| info.free_bytes).min(allowed.saturating_sub(rings.reserved_bytes));
    // In the cache a block would do; the device is only ever asked for a whole segment.
    let enough = cached >= failure.block_bytes || cached + obtainable >= failure.segment_bytes;
    if enough { Verdict::Fragmented } else { Verdict::Full }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: tried to allocate {}", Binary(self.requested_bytes))?;
        if self.segment_bytes != self.requested_bytes {
            write!(f, " (a segment of {})", Binary(self.segment_bytes))?;
        }
        if let (Some(free), Some(total)) = (self.free_bytes, self.total_bytes) {
            write!(f, " with {} of {} free on the device", Binary(free), Binary(total))?;
        }
        if let Some(allowed) = self.allowed_bytes {
            write!(f, ", {} allowed", Binary(allowed))?;
        }
        f.write_str(match self.verdict {
            Verdict::Hopeless => "; hopeless: the device can never give that much",
            Verdict::Full => "; the device is full",
            Verdict::Fragmented => "; fragmented: enough is free, but not in one piece",
        })?;
        let Rings { allocated_bytes, active_bytes, reserved_bytes, .. } = self.rings;
        write!(f, ". {} are allocated", Binary(allocated_bytes))?;
        let held = Category::ALL.into_iter().filter(|&category| self.by_category[category as usize] > 0);
        let mut held: Vec<_> = held.map(|category| (self.by_category[category as usize], category)).collect();
        held.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (index, (bytes, category)) in held.iter().enumerate() {
            write!(f, "{}{category} {}", if index == 0 { ": " } else { ", " }, Binary(*bytes))?;
        }
        write!(f, "; {} are cached", Binary(reserved_bytes.saturating_sub(active_bytes)))?;
        if self.released_bytes > 0 {
            write!(f, " after {} were given back", Binary(self.released_bytes))?;
        }
        write!(f, ". At most {} would have fit", Binary(self.largest_fit_bytes))?;
        let named = self.top_scopes.iter().filter(|(path, _)| !path.is_empty());
        for (index, (path, bytes)) in named.enumerate() {
            write!(f, "{}{path} {}", if index == 0 { ". Most is held by " } else { ", " }, Binary(*bytes))?;
        }
        f.write_str(".")
    }
}

/// Bytes in binary units, with the exact number beside where it is not itself shown.
struct Binary(u64);

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match UNITS.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{:.2} {name} ({} bytes)", self.0 as f64 / *unit as f64, self.0),
            None => write!(f, "{} bytes", self.0),
        }
    }
}
