//! The five sizes that are always shown together.

use super::stats::Stats;
use crate::backend::Overhead;

/// Five nested measures of one device's memory, in bytes; the gaps between them are what a report explains.
///
/// *requested* → rounding → *allocated*, pending frees → *active* → cache and fragmentation → *reserved* → context,
/// libraries and other processes → *driver*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// What clients asked for. Falls when a free completes.
    pub requested_bytes: u64,
    /// What they were given. Falls when a free is called: with frees pending it may lie below `requested_bytes`.
    pub allocated_bytes: u64,
    /// Given, or freed and waiting for other streams.
    pub active_bytes: u64,
    /// Taken from the driver by the allocator.
    pub reserved_bytes: u64,
    /// In use on the device, says the driver; `None` where it will not say.
    pub driver_bytes: Option<u64>,
}

impl Rings {
    /// The current values of an allocator, and what the driver says is in use.
    pub fn now(stats: &Stats, driver_bytes: Option<u64>) -> Self {
        Self {
            requested_bytes: stats.requested_bytes.all.current,
            allocated_bytes: stats.allocated_bytes.all.current,
            active_bytes: stats.active_bytes.all.current,
            reserved_bytes: stats.reserved_bytes.all.current,
            driver_bytes,
        }
    }

    /// The peaks of an allocator. They need not have happened at one time.
    pub fn peaks(stats: &Stats) -> Self {
        Self {
            requested_bytes: stats.requested_bytes.all.peak,
            allocated_bytes: stats.allocated_bytes.all.peak,
            active_bytes: stats.active_bytes.all.peak,
            reserved_bytes: stats.reserved_bytes.all.peak,
            driver_bytes: None,
        }
    }

    /// What is left of the driver's figure besides segments and these parts, in bytes; negative where another process gave
    /// memory back since they were measured. `None` without a figure of the driver's.
    pub fn unexplained_bytes(&self, overheads: &[Overhead]) -> Option<i64> {
        let parts: u64 = overheads.iter().map(|part| part.bytes).sum();
        let rest = i128::from(self.driver_bytes?) - i128::from(self.reserved_bytes) - i128::from(parts);
        i64::try_from(rest).ok()
    }

    /// Whether they are nested as they must be: requested ≤ active, allocated ≤ active ≤ reserved ≤ driver.
    pub fn nested(&self) -> bool {
        self.requested_bytes <= self.active_bytes
            && self.allocated_bytes <= self.active_bytes
            && self.active_bytes <= self.reserved_bytes
            && self.driver_bytes.is_none_or(|driver| self.reserved_bytes <= driver)
    }
}
