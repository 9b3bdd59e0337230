//! PyTorch's releases, and the allocator settings that each reads.

use std::fmt;

/// A release: 2.11 is `Release(2, 11)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Range of releases that may have made a recording, by its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// Oldest release.
    pub oldest: Release,
    /// Newest release.
    pub newest: Release,
}

impl Default for Releases {
    /// Returns the release whose allocator is reproduced by default.
    fn default() -> Self {
        Self { oldest: Release(2, 11), newest: Release(2, 11) }
    }
}

/// Keys of a snapshot that tell releases apart.
pub(super) struct Keys<'a> {
    /// True if the root has tables of pinned memory.
    pub(super) host: bool,
    /// True for an allocator setting that the snapshot names.
    pub(super) settings: &'a dyn Fn(&str) -> bool,
    /// Settings that were set.
    pub(super) alloc_conf: &'a str,
    /// True if segments have the key for expandable.
    pub(super) expandable: bool,
    /// True if entries of a trace have a time; `None` without entries.
    pub(super) time: Option<bool>,
}

impl Releases {
    /// Tells the releases by the keys: snapshots of Intel's devices, from 2.11 on, name their settings by `PYTORCH_ALLOC_CONF` and do not say how large
    /// split blocks may be; of CUDA's, entries have times from 2.2 on (pytorch#112266), a snapshot names the settings from 2.3 on (pytorch#119404).
    pub(super) fn of_keys(keys: &Keys<'_>) -> Self {
        let (oldest, newest) = if keys.host {
            (Release(2, 12), Release(2, 15))
        } else if (keys.settings)("PYTORCH_ALLOC_CONF") && !(keys.settings)("max_split_size") {
            (Release(2, 11), Release(2, 15))
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

/// Returns the first release that reads a setting such as `max_split_size_mb:128`.
pub(super) fn since(setting: &str) -> Release {
    match setting.split(':').next() {
        Some("large_segment_size_mb") => Release(2, 10),
        Some("expandable_segments") => Release(2, 1),
        Some("roundup_power2_divisions" | "garbage_collection_threshold") => Release(1, 12),
        _ => Release(1, 10),
    }
}
