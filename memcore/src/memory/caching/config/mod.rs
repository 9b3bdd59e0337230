//! The allocator settings, in PyTorch's syntax.

mod parse;
mod tokens;

use crate::error::Result;

const MIB: u64 = 1 << 20;

/// The PyTorch release that the allocator follows, where releases differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TorchVersion {
    /// An open private pool counts as a graph capture.
    #[default]
    V2_11,
    /// Among free blocks of one size, the one created first comes first, whatever its address. Only this release does
    /// that.
    V2_12,
    /// Only graph captures count as such. Adds refusals without asking the driver, reserve sizes, and counters of
    /// private pools.
    V2_15,
}

impl TorchVersion {
    /// The behaviour of PyTorch 2.`minor`: that of the nearest known release before it, except that 2.13 returned to
    /// the order of 2.11.
    pub fn of_release(minor: u32) -> Self {
        match minor {
            15.. => Self::V2_15,
            12 => Self::V2_12,
            _ => Self::V2_11,
        }
    }
}

/// The address space that an expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpandableReserve {
    /// A fraction of the device's memory.
    Fraction(f64),
    /// Bytes.
    Bytes(u64),
}

impl ExpandableReserve {
    /// Returns bytes, for a device of `total_bytes`.
    pub(super) fn bytes(self, total_bytes: u64) -> u64 {
        match self {
            ExpandableReserve::Fraction(fraction) => (fraction * total_bytes as f64) as u64,
            ExpandableReserve::Bytes(bytes) => bytes,
        }
    }
}

/// Options for memory pinned on the host. They are parsed and kept; nothing on a device depends on them.
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

/// Settings of `PYTORCH_CUDA_ALLOC_CONF`. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorConfig {
    /// The PyTorch release that is followed.
    pub version: TorchVersion,
    /// `max_split_size_mb`: larger blocks are never split, and serve only requests of nearly their size. `u64::MAX`: no
    /// limit.
    pub max_split_size_bytes: u64,
    /// `max_non_split_rounding_mb`: the most by which such a block may exceed the request.
    pub max_non_split_rounding_bytes: u64,
    /// `large_segment_size_mb`: size of the segment for requests under 10 MiB, and of a page of large expandable
    /// segments.
    pub large_segment_bytes: u64,
    /// `roundup_power2_divisions`: the number of steps into which each power of two from 1 MiB to 32 GiB is divided; 0
    /// and 1: steps of 512 bytes. Smaller requests use the first entry.
    pub roundup_power2_divisions: [u64; 16],
    /// `garbage_collection_threshold`: the share of the allowed memory above which old segments are collected; 0:
    /// never.
    pub garbage_collection_threshold: f64,
    /// `expandable_segments`
    pub expandable_segments: bool,
    /// `expandable_segments_reserve` (2.15); `None`: 9/8 of the device.
    pub expandable_reserve: Option<ExpandableReserve>,
    /// `per_process_memory_fraction`: limits a new allocator to this fraction of its device.
    pub per_process_memory_fraction: f64,
    /// `throw_on_cudamalloc_oom` (2.15): refuse at once a request that would exceed the fraction.
    pub throw_on_oom: bool,
    /// `graph_capture_record_stream_reuse`: parsed and kept; no graph is captured here.
    pub graph_capture_record_stream_reuse: bool,
    /// `release_lock_on_cudamalloc`: parsed and kept; there is one thread.
    pub release_lock_on_device_malloc: bool,
    /// Options of pinned memory.
    pub pinned: PinnedConfig,
    /// The text that was parsed last.
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
    /// The default settings of a release.
    pub fn for_version(version: TorchVersion) -> Self {
        Self { version, ..Self::default() }
    }

    /// Size of the block that a request of `bytes` gets, before any rest that is too small to split off. Bytes.
    pub fn block_bytes(&self, bytes: u64) -> u64 {
        super::sizes::round(bytes.min(super::sizes::TENSOR_LIMIT_BYTES - 1), &self.roundup_power2_divisions)
    }

    /// True if a request of `bytes` is served by the small pool.
    pub fn is_small(&self, bytes: u64) -> bool {
        self.block_bytes(bytes) <= super::sizes::SMALL_BYTES
    }

    /// Parses settings such as `max_split_size_mb:64,garbage_collection_threshold:0.8`; others have their defaults.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with PyTorch's own message.
    pub fn parse(settings: &str) -> Result<Self> {
        let mut config = Self::default();
        config.update(settings)?;
        Ok(config)
    }
}
