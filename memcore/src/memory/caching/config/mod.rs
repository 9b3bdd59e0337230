//! The settings, in PyTorch's syntax.

mod parse;
mod tokens;

use crate::error::Result;

const MIB: u64 = 1 << 20;

/// Which release of PyTorch the allocator mimics, where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TorchVersion {
    /// An open private pool counts as a graph capture.
    #[default]
    V2_11,
    /// Of free blocks of one size the one that was made first comes first, wherever it lies: in this release alone.
    V2_12,
    /// Only captures do; adds refusal ahead of the driver, reserve sizes, and counters of private pools.
    V2_15,
}

impl TorchVersion {
    /// How the allocator of PyTorch 2.`minor` behaves: as the nearest known release before it, but that 2.13 has the order of 2.11 again.
    pub fn of_release(minor: u32) -> Self {
        match minor {
            15.. => Self::V2_15,
            12 => Self::V2_12,
            _ => Self::V2_11,
        }
    }
}

/// How much address space an expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpandableReserve {
    /// A fraction of the device's memory.
    Fraction(f64),
    /// Bytes.
    Bytes(u64),
}

impl ExpandableReserve {
    /// In bytes, on a device of `total_bytes`.
    pub(super) fn bytes(self, total_bytes: u64) -> u64 {
        match self {
            ExpandableReserve::Fraction(fraction) => (fraction * total_bytes as f64) as u64,
            ExpandableReserve::Bytes(bytes) => bytes,
        }
    }
}

/// Options of memory pinned on the host. They are understood and kept; nothing on a device depends on them.
#[derive(Clone, Debug, PartialEq)]
pub struct PinnedConfig {
    /// `pinned_use_cuda_host_register`
    pub use_host_register: bool,
    /// `pinned_num_register_threads`
    pub num_register_threads: u64,
    /// `pinned_use_background_threads`
    pub use_background_threads: bool,
    /// `pinned_reserve_segment_size_mb`
    pub reserve_segment_mb: u64,
}

/// What `PYTORCH_CUDA_ALLOC_CONF` can set. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorConfig {
    /// The release that is mimicked.
    pub version: TorchVersion,
    /// `max_split_size_mb`: larger blocks are never split, and serve only requests about as large. `u64::MAX`: none.
    pub max_split_size_bytes: u64,
    /// `max_non_split_rounding_mb`: how much larger than the request such a block may be.
    pub max_non_split_rounding_bytes: u64,
    /// `large_segment_size_mb`: the segment for requests under 10 MiB, and the page of large expandable segments.
    pub large_segment_bytes: u64,
    /// `roundup_power2_divisions`: in how many steps each power of two from 1 MiB to 32 GiB is divided; 0 and 1: in
    /// steps of 512 bytes. Smaller requests use the first entry.
    pub roundup_power2_divisions: [u64; 16],
    /// `garbage_collection_threshold`: the share of the allowed memory above which old segments are collected. 0: never.
    pub garbage_collection_threshold: f64,
    /// `expandable_segments`
    pub expandable_segments: bool,
    /// `expandable_segments_reserve` (2.15); `None`: 9/8 of the device.
    pub expandable_reserve: Option<ExpandableReserve>,
    /// `per_process_memory_fraction`: limits a new allocator to this fraction of its device.
    pub per_process_memory_fraction: f64,
    /// `throw_on_cudamalloc_oom` (2.15): refuse at once what would exceed the fraction.
    pub throw_on_oom: bool,
    /// `graph_capture_record_stream_reuse`: understood and kept; nothing is captured here.
    pub graph_capture_record_stream_reuse: bool,
    /// `release_lock_on_cudamalloc`: understood and kept; there is one thread.
    pub release_lock_on_device_malloc: bool,
    /// Options of pinned memory.
    pub pinned: PinnedConfig,
    /// The text last parsed.
    pub last_settings: String,
}

impl Default for AllocatorConfig {
    fn default() -> Self {
        Self {
            version: TorchVersion::default(),
            max_split_size_bytes: u64::MAX,
            max_non_split_rounding_bytes: 20 * MIB,
            large_segment_bytes: 20 * MIB,
            roundup_power2_divisions: [0; 16],
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            expandable_reserve: None,
            per_process_memory_fraction: 1.0,
            throw_on_oom: false,
            graph_capture_record_stream_reuse: false,
            release_lock_on_device_malloc: false,
            pinned: PinnedConfig {
                use_host_register: false,
                num_register_threads: 1,
                use_background_threads: false,
                reserve_segment_mb: 0,
            },
            last_settings: String::new(),
        }
    }
}

impl AllocatorConfig {
    /// The defaults of a release.
    pub fn for_version(version: TorchVersion) -> Self {
        Self { version, ..Self::default() }
    }

    /// Reads settings such as `max_split_size_mb:64,garbage_collection_threshold:0.8`, over the defaults.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with PyTorch's own text.
    pub fn parse(settings: &str) -> Result<Self> {
        let mut config = Self::default();
        config.update(settings)?;
        Ok(config)
    }
}
