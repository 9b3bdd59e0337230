//! Counters of a device's work.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::host::Host;
use crate::backend::Cost;

/// Work that a device was asked to do so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kernels launched.
    pub launches: u64,
    /// Bytes that those kernels had to move at least.
    pub bytes: u64,
    /// Floating-point operations that they had to do at least.
    pub flops: u64,
    /// Bytes copied from the host.
    pub uploaded_bytes: u64,
    /// Bytes copied to the host.
    pub downloaded_bytes: u64,
    /// Bytes moved to other devices, through the host or not; counted also on a device without values.
    pub sent_bytes: u64,
    /// Bytes moved here from other devices.
    pub received_bytes: u64,
}

/// [`Counters`] that several threads can increase, and the memory of the host.
#[derive(Default)]
pub(super) struct Work {
    pub(super) launches: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) flops: AtomicU64,
    pub(super) uploaded_bytes: AtomicU64,
    pub(super) downloaded_bytes: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) host: Host,
}

impl Work {
    /// Adds a launch that costs so much.
    pub(super) fn add(&self, cost: &Cost) {
        self.launches.fetch_add(1, Relaxed);
        self.bytes.fetch_add(cost.bytes_read + cost.bytes_written, Relaxed);
        self.flops.fetch_add(cost.flops, Relaxed);
    }

    pub(super) fn counted(&self) -> Counters {
        Counters {
            launches: self.launches.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            flops: self.flops.load(Relaxed),
            uploaded_bytes: self.uploaded_bytes.load(Relaxed),
            downloaded_bytes: self.downloaded_bytes.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
        }
    }
}
