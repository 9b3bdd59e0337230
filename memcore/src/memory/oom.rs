//! The report on a failed allocation, from the allocator, the ledger and the driver; and PyTorch's error message for
//! it.

use std::fmt;

use super::allocator::{AllocationFailure, Allocator};
use super::caching::TorchVersion;
use super::ledger::Ledger;
use crate::account::{OutOfMemory, Rings, Verdict};
use crate::backend::DeviceMemory;

/// Number of scopes that a report names.
const TOP_SCOPES: usize = 5;

impl OutOfMemory {
    /// The report on the allocator's last failure. `requested_bytes` is used if the allocator keeps no record of it.
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
            needs: None,
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

    /// The message of `torch.OutOfMemoryError`, for comparison with a run of PyTorch, without NVML's figures about
    /// processes. `expandable` tells whether expandable segments are on: later releases then give another hint.
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

/// Displays bytes as PyTorch does: a larger unit only above 1024 of the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
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
    if obtainable >= failure.segment_bytes {
        return Verdict::Refused;
    }
    // In the cache a free block suffices; the device is only ever asked for a whole segment.
    let enough = cached >= failure.block_bytes || cached + obtainable >= failure.segment_bytes;
    if enough { Verdict::Fragmented } else { Verdict::Full }
}
