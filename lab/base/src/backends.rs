//! The devices that a program was built with: its table of backends, and the choice of one.

use std::sync::Arc;

use memcore::backend::Backend;
use memcore::{Error, Result};

/// What stands for the first backend that works.
pub const AUTO: &str = "auto";

/// The [kind](About::kind) of a backend that is the processor itself.
pub const PROCESSOR: &str = "processor";

/// The [kind](About::kind) of a backend that counts memory and computes nothing.
pub const PAPER: &str = "none";

/// A backend of this build.
pub struct Entry {
    /// As typed.
    pub name: &'static str,
    /// How many devices it sees. An error says why none, and what would help.
    pub count: fn() -> Result<usize>,
    /// Opens the device of that number, which is below the count.
    pub open: fn(usize) -> Result<Arc<dyn Backend>>,
    /// What can be said of the device of that number without opening it.
    pub about: fn(usize) -> About,
    /// Memory of every device, without taking any: what cannot be asked so, or is absent, is left out.
    pub memory: fn() -> Vec<DeviceMemory>,
}

/// Memory of a device, as its driver says.
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

/// What kind of device it is.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// [`PROCESSOR`], `discrete`, `integrated`, `software`, [`PAPER`], … Empty where there is nothing to say.
    pub kind: &'static str,
    /// What else it can do that kernels may use.
    pub features: Vec<&'static str>,
    /// Why [`AUTO`] passes it over, where it does.
    pub passed_over: Option<String>,
}

impl Entry {
    /// Whether its devices hold values.
    pub fn computes(&self) -> bool {
        (self.about)(0).kind != PAPER
    }

    /// Whether several devices of its name are one, each with a memory account of its own: the processor, and paper.
    pub fn is_shared(&self) -> bool {
        matches!((self.about)(0).kind, PROCESSOR | PAPER)
    }

    /// Opens a device.
    ///
    /// # Errors
    /// When there is no such device, or it does not start.
    pub fn device(&self, index: usize) -> Result<Arc<dyn Backend>> {
        let count = (self.count)()?;
        if index >= count {
            let have = format!("there is no device {index}; numbers go from 0 to {}", count.saturating_sub(1));
            return Err(Error::backend(self.name, have));
        }
        (self.open)(index)
    }
}

/// Something that the user should hear of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// In a sentence.
    pub text: String,
    /// Whether it is said unless asked to be silent; otherwise only where more is asked for.
    pub important: bool,
}

/// The backend of that name; for [`AUTO`] the first whose device `index` opens. With which and why, where it is not the expected one.
///
/// # Errors
/// When the device does not open; for [`AUTO`] when none does, with every reason; for a name that this build does not have.
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
