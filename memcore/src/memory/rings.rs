//! Sources of the five sizes.

use super::stats::Stats;
use crate::account::Rings;
use crate::backend::Overhead;

impl Rings {
    /// The current values of an allocator, and the bytes in use that the driver reports.
    pub fn now(stats: &Stats, driver_bytes: Option<u64>) -> Self {
        Self {
            requested_bytes: stats.requested_bytes.all.current,
            allocated_bytes: stats.allocated_bytes.all.current,
            active_bytes: stats.active_bytes.all.current,
            reserved_bytes: stats.reserved_bytes.all.current,
            driver_bytes,
        }
    }

    /// The peaks of an allocator. They need not have occurred at the same time.
    pub fn peaks(stats: &Stats) -> Self {
        Self {
            requested_bytes: stats.requested_bytes.all.peak,
            allocated_bytes: stats.allocated_bytes.all.peak,
            active_bytes: stats.active_bytes.all.peak,
            reserved_bytes: stats.reserved_bytes.all.peak,
            driver_bytes: None,
        }
    }

    /// The driver's figure less segments and these parts, in bytes. Negative if another process has given memory back
    /// since the parts were measured. `None` if the driver reports no figure.
    pub fn unexplained_bytes(&self, overheads: &[Overhead]) -> Option<i64> {
        let parts: u64 = overheads.iter().map(|part| part.bytes).sum();
        let rest = i128::from(self.driver_bytes?) - i128::from(self.reserved_bytes) - i128::from(parts);
        i64::try_from(rest).ok()
    }
}
