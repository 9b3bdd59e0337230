//! The devices of a snapshot that an answer does not show, in one line.

use lab_base::figures::{counted, short};
use lab_traces::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

/// A device of the same file that is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherDevice {
    /// Index of the device.
    pub device: usize,
    /// Most memory that was reserved on it. Bytes.
    pub peak_reserved: u64,
    /// Number of requests that failed on it.
    pub failed: usize,
}

impl OtherDevice {
    /// Returns those of a snapshot that have memory or a trace.
    pub fn all_but(snapshot: &Snapshot, shown: usize) -> Vec<Self> {
        let used = snapshot.devices_in_use().into_iter().filter(|used| used.device != shown);
        used.map(|used| Self { device: used.device, peak_reserved: used.peak_reserved, failed: used.failed }).collect()
    }

    /// Names them in a line; `None` if there are none.
    pub(super) fn in_words(shown: usize, others: &[Self]) -> Option<String> {
        let listed = Self::listed(others)?;
        Some(format!("This is device {shown}. The file also has {listed}: --device N."))
    }

    /// Lists them: `devices 1 (406 MiB reserved), 2 (4 MiB reserved)`; `None` if there are none.
    pub(super) fn listed(others: &[Self]) -> Option<String> {
        let named = |other: &Self| {
            let failed = match other.failed {
                0 => String::new(),
                failed => format!(", {}", counted(failed as u64, "failed request")),
            };
            format!("{} ({} reserved{failed})", other.device, short(other.peak_reserved))
        };
        let listed: Vec<String> = others.iter().take(MOST).map(named).collect();
        let more = if others.len() > MOST { format!(" and {} more", others.len() - MOST) } else { String::new() };
        (!others.is_empty()).then(|| {
            let device = if others.len() == 1 { "device" } else { "devices" };
            format!("{device} {}{more}", listed.join(", "))
        })
    }

    /// Names the shown device among several, after the name of a file; empty if it is the only one.
    pub(super) fn after_name(snapshot: &Snapshot, shown: usize) -> String {
        let others = Self::all_but(snapshot, shown);
        let listed: Vec<String> = others.iter().take(MOST).map(|other| other.device.to_string()).collect();
        if others.is_empty() { String::new() } else { format!(", device {shown} (others: {})", listed.join(", ")) }
    }
}

/// Number of devices that a line names.
const MOST: usize = 8;

/// The device of a snapshot that an answer is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenDevice {
    /// Index of the device.
    pub device: usize,
    /// The other devices of the file that have memory or a trace.
    pub others: Vec<OtherDevice>,
}

impl ChosenDevice {
    /// Of a snapshot.
    pub fn from_snapshot(snapshot: &Snapshot, device: usize) -> Self {
        Self { device, others: OtherDevice::all_but(snapshot, device) }
    }

    /// Names the device and the others in a line; `None` if it is the only one.
    pub(super) fn in_words(&self) -> Option<String> {
        OtherDevice::in_words(self.device, &self.others)
    }
}
