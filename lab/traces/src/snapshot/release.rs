//! Releases of PyTorch, and which of them read which settings of the allocator.

use std::fmt;

/// A release: 2.11 is `Release(2, 11)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The releases that may have made a recording, as far as its keys tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The oldest.
    pub oldest: Release,
    /// The newest.
    pub newest: Release,
}

impl Default for Releases {
    /// The release whose allocator is reproduced unless something else is asked for.
    fn default() -> Self {
        Self { oldest: Release(2, 11), newest: Release(2, 11) }
    }
}

impl Releases {
    /// From the keys that a snapshot has at its root and among its allocator's settings.
    pub(super) fn of_keys(newer: bool, settings: impl Fn(&str) -> bool, alloc_conf: &str) -> Self {
        let (oldest, newest) = if newer {
            (Release(2, 12), Release(2, 15))
        } else if alloc_conf.contains("large_segment_size_mb") {
            (Release(2, 10), Release(2, 11))
        } else if settings("graph_capture_record_stream_reuse") {
            (Release(2, 9), Release(2, 11))
        } else if settings("expandable_segments") {
            (Release(2, 1), Release(2, 8))
        } else {
            (Release(1, 12), Release(2, 0))
        };
        Self { oldest, newest }
    }
}

/// The first release that reads a setting such as `max_split_size_mb:128`.
pub(super) fn since(setting: &str) -> Release {
    match setting.split(':').next() {
        Some("large_segment_size_mb") => Release(2, 10),
        Some("expandable_segments") => Release(2, 1),
        Some("roundup_power2_divisions" | "garbage_collection_threshold") => Release(1, 12),
        _ => Release(1, 10),
    }
}
