//! The devices that a program was built with: its table of backends, and the choice of one.

use std::sync::Arc;

use memcore::backend::Backend;
use memcore::{Error, Result};

/// The name that chooses the first backend that works.
pub const AUTO: &str = "auto";

/// The [kind](About::kind) of a backend that is the processor itself.
pub const PROCESSOR: &str = "processor";

/// The [kind](About::kind) of a backend that counts memory and computes nothing.
pub const PAPER: &str = "none";

/// A backend of this build.
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// Counts its devices. The error says why there are none, and what would help.
    pub count: fn() -> Result<usize>,
    /// Opens the device with this number, which is below the count.
    pub open: fn(usize) -> Result<Arc<dyn Backend>>,
    /// Describes the device with this number without opening it.
    pub about: fn(usize) -> About,
    /// Reports the memory of every device without allocating any. Devices that are absent, or cannot be asked without that, are left out.
    pub memory: fn() -> Vec<DeviceMemory>,
}

/// Memory of a device, as its driver reports it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct DeviceMemory {
    /// The backend's name.
    pub backend: String,
    /// The device's own name.
    pub name: String,
    /// Bytes in use, by anyone.
    pub used_bytes: Option<u64>,
    /// Bytes that it has.
    pub total_bytes: Option<u64>,
}

/// Description of a device that is not open.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Kind of device: [`PROCESSOR`], `discrete`, `integrated`, `software`, [`PAPER`], … Empty if there is nothing to say.
    pub kind: &'static str,
    /// Optional features of the device that kernels may use.
    pub features: Vec<&'static str>,
    /// Why [`AUTO`] passes the device over; `None` if it does not.
    pub passed_over: Option<String>,
}

impl Entry {
    /// Whether its devices hold values.
    pub fn computes(&self) -> bool {
        (self.about)(0).kind != PAPER
    }

    /// True if all of its devices are the same one, each with its own memory account: true for the CPU and for dry runs.
    pub fn is_shared(&self) -> bool {
        matches!((self.about)(0).kind, PROCESSOR | PAPER)
    }

    /// Opens a device.
    ///
    /// # Errors
    /// If there is no such device, or it does not start.
    pub fn device(&self, index: usize) -> Result<Arc<dyn Backend>> {
        let count = (self.count)()?;
        if index >= count {
            let have = format!("there is no device {index}; numbers go from 0 to {}", count.saturating_sub(1));
            return Err(Error::backend(self.name, have));
        }
        (self.open)(index)
    }
}

/// A message to the user about a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The message, one sentence.
    pub text: String,
    /// True if the message is shown unless the user asked for silence; false if it is shown only when the user asked for more.
    pub important: bool,
}

/// Chooses the backend with this name; for [`AUTO`] the first one whose device `index` opens. The remarks say which one was taken and why, if it is
/// not the expected one.
///
/// # Errors
/// If the device does not open; for [`AUTO`] if none does, with every reason; if this build has no backend of that name.
pub fn choose(all: &'static [Entry], name: &str, index: usize) -> crate::Result<(&'static Entry, Vec<Remark>)> {
    if let Some(entry) = all.iter().find(|entry| entry.name == name) {
        return Ok((entry, first_use(&*entry.device(index)?)));
    }
    if name != AUTO {
        let known: Vec<&str> = all.iter().map(|entry| entry.name).collect();
        return Err(crate::Error::usage(
            "backend",
            format!("{name:?}: no such backend in this build; there are {}", known.join(", ")),
        ));
    }
    let mut reasons: Vec<String> = Vec::new();
    for entry in all {
        let device = match (entry.about)(index).passed_over {
            Some(reason) => Err(Error::backend(entry.name, reason)),
            None => entry.device(index),
        };
        match device {
            Ok(backend) => {
                let why = if reasons.is_empty() { "it comes first".to_string() } else { reasons.join("; ") };
                let text = format!("backend {} ({}): {why}", entry.name, backend.device_name());
                let mut remarks = vec![Remark { text, important: (entry.about)(index).kind != PROCESSOR }];
                remarks.extend(first_use(&*backend));
                return Ok((entry, remarks));
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(Error::backend(AUTO, reasons.join("; ")).into())
}

fn first_use(backend: &dyn Backend) -> Vec<Remark> {
    let text = backend.first_use().map(|text| format!("{}: {text}", backend.name()));
    text.into_iter().map(|text| Remark { text, important: true }).collect()
}
