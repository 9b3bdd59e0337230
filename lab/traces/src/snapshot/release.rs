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

/// Keys that tell releases apart, as far as a snapshot has them.
pub(super) struct Keys<'a> {
    /// Tables of pinned memory at the root.
    pub(super) host: bool,
    /// Settings of the allocator that are named.
    pub(super) settings: &'a dyn Fn(&str) -> bool,
    /// Those that were set.
    pub(super) alloc_conf: &'a str,
    /// Whether a segment says that it is expandable or not.
    pub(super) expandable: bool,
    /// Whether an entry of a trace has a time; `None` without entries.
    pub(super) time: Option<bool>,
}

impl Releases {
    /// From the keys: entries have times from 2.2 on (pytorch#112266), a snapshot names the settings from 2.3 on (pytorch#119404).
    pub(super) fn of_keys(keys: &Keys<'_>) -> Self {
        let (oldest, newest) = if keys.host {
            (Release(2, 12), Release(2, 15))
        } else if keys.alloc_conf.contains("large_segment_size_mb") {
            (Release(2, 10), Release(2, 11))
        } else if (keys.settings)("graph_capture_record_stream_reuse") {
            (Release(2, 9), Release(2, 11))
        } else if (keys.settings)("expandable_segments") {
            (Release(2, 3), Release(2, 8))
        } else {
            match (keys.time, keys.expandable) {
                (Some(true), _) => (Release(2, 2), Release(2, 2)),
                (Some(false), true) => (Release(2, 1), Release(2, 1)),
                (None, true) => (Release(2, 1), Release(2, 2)),
                (_, false) => (Release(1, 12), Release(2, 0)),
            }
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
