//! The devices of a snapshot: which of them to look at first.

use super::model::{Action, Snapshot, total};

/// What a device's recording says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Index of the device.
    pub device: usize,
    /// Most bytes of segments at one time.
    pub peak_reserved: u64,
    /// Number of requests that failed.
    pub failed: usize,
    /// Number of entries of its trace.
    pub entries: usize,
    /// Time of the last request that failed, in microseconds since 1970.
    last_failure_us: i64,
}

impl Snapshot {
    /// Returns the device to look at: the one that ran out of memory last, else the one with most reserved.
    pub fn main_device(&self) -> usize {
        let used = self.devices_in_use();
        // Of equal ones, the first.
        let main = used
            .iter()
            .rev()
            .max_by_key(|used| (used.failed > 0, used.last_failure_us, used.peak_reserved, used.entries));
        main.map_or(0, |used| used.device)
    }

    /// Returns the devices that have segments or a trace, in order.
    pub fn devices_in_use(&self) -> Vec<DeviceUse> {
        let all = (0..self.devices()).map(|device| self.device_use(device));
        all.filter(|used| used.peak_reserved > 0 || used.entries > 0).collect()
    }

    fn device_use(&self, device: usize) -> DeviceUse {
        let trace = self.trace(device);
        let failures = || trace.iter().filter(|event| event.action == Action::Oom);
        let reserved = self.reserved_after(device).max().unwrap_or(0);
        DeviceUse {
            device,
            peak_reserved: reserved.max(self.reserved_before(device)),
            failed: failures().count(),
            entries: trace.len(),
            last_failure_us: failures().map(|event| event.time_us).max().unwrap_or(0),
        }
    }

    /// Returns the bytes of segments when a device's trace began.
    pub fn reserved_before(&self, device: usize) -> u64 {
        let end = total(self.segments_of(device).map(|segment| segment.bytes));
        let (mut taken, mut given) = (0u64, 0u64);
        for event in self.trace(device) {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => taken = taken.saturating_add(event.bytes),
                Action::SegmentFree | Action::SegmentUnmap => given = given.saturating_add(event.bytes),
                _ => {}
            }
        }
        end.saturating_add(given).saturating_sub(taken)
    }

    /// Returns the bytes of segments after each entry.
    pub fn reserved_after(&self, device: usize) -> impl Iterator<Item = u64> + '_ {
        let mut reserved = self.reserved_before(device);
        self.trace(device).iter().map(move |event| {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => reserved = reserved.saturating_add(event.bytes),
                Action::SegmentFree | Action::SegmentUnmap => reserved = reserved.saturating_sub(event.bytes),
                _ => {}
            }
            reserved
        })
    }
}
