//! The one table of devices in this build. **To add a backend**: a cargo feature, and an entry in [`ALL`].

use std::sync::Arc;

use memcore::backend::{Backend, Meta};
use memcore::{Error, Result};
use serde_json::{Value, json};

use crate::ui::Ui;

/// What stands for the first backend that works.
pub(crate) const AUTO: &str = "auto";

/// A backend of this build.
pub(crate) struct Entry {
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
#[derive(Clone, Debug)]
pub(crate) struct DeviceMemory {
    /// The backend's name.
    pub backend: &'static str,
    /// The device's own name.
    pub name: String,
    /// Bytes in use, by anyone.
    pub used_bytes: Option<u64>,
    /// Bytes that it has.
    pub total_bytes: Option<u64>,
}

impl DeviceMemory {
    /// As results store it.
    pub(crate) fn json(&self) -> Value {
        json!({
            "backend": self.backend,
            "name": self.name,
            "used_bytes": self.used_bytes,
            "total_bytes": self.total_bytes,
        })
    }
}

/// What kind of device it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// `processor`, `discrete`, `integrated`, `software`, … Empty where there is nothing to say.
    pub kind: &'static str,
    /// What else it can do that kernels may use.
    pub features: Vec<&'static str>,
    /// Why [`AUTO`] passes it over, where it does.
    pub passed_over: Option<String>,
}

/// Every backend, the one to prefer first.
pub(crate) const ALL: &[Entry] = &[
    #[cfg(feature = "cuda")]
    Entry {
        name: "cuda",
        count: backend_cuda::Cuda::count,
        open: |i| Ok(Arc::new(backend_cuda::Cuda::open(i)?)),
        about: |_| About { kind: "discrete", ..About::default() },
        memory: cuda_memory,
    },
    #[cfg(feature = "wgpu")]
    Entry {
        name: "wgpu",
        count: wgpu_count,
        open: |i| Ok(Arc::new(backend_wgpu::Wgpu::open(i)?)),
        about: wgpu_about,
        // WebGPU has no figure for it.
        memory: Vec::new,
    },
    #[cfg(feature = "cpu")]
    Entry {
        name: "cpu",
        count: || Ok(1),
        open: |_| Ok(Arc::new(backend_cpu::Cpu::new()?)),
        about: |_| About { kind: "processor", ..About::default() },
        memory: cpu_memory,
    },
    Entry {
        name: "meta",
        count: || Ok(1),
        open: |_| Ok(Arc::new(Meta::default())),
        about: |_| About { kind: "none", ..About::default() },
        memory: Vec::new,
    },
];

/// What must be done before anything else in the process: Mesa's layer that sorts Vulkan devices complains on stderr where there is no
/// desktop. We sort them ourselves.
pub(crate) fn prepare() {
    #[cfg(all(feature = "wgpu", target_os = "linux"))]
    // SAFETY: called first in `main`: no other thread exists that could read the environment meanwhile.
    unsafe {
        std::env::set_var("NODEVICE_SELECT", "1");
    }
}

/// The host's.
#[cfg(feature = "cpu")]
fn cpu_memory() -> Vec<DeviceMemory> {
    let memory = backend_cpu::host_memory();
    let used_bytes = memory.map(|m| m.total_bytes.saturating_sub(m.free_bytes));
    let total_bytes = memory.map(|m| m.total_bytes);
    vec![DeviceMemory { backend: "cpu", name: "host".into(), used_bytes, total_bytes }]
}

/// What NVML says: without a context, which would take memory itself.
#[cfg(feature = "cuda")]
fn cuda_memory() -> Vec<DeviceMemory> {
    let device = |(name, figures): (String, backend_cuda::NvmlFigures)| DeviceMemory {
        backend: "cuda",
        name,
        used_bytes: Some(figures.device_used_bytes),
        total_bytes: Some(figures.device_total_bytes),
    };
    backend_cuda::nvml_devices().unwrap_or_default().into_iter().map(device).collect()
}

/// Adapters of all drivers.
#[cfg(feature = "wgpu")]
fn wgpu_count() -> Result<usize> {
    match backend_wgpu::adapters().len() {
        0 => Err(Error::backend("wgpu", backend_wgpu::NO_ADAPTER)),
        count => Ok(count),
    }
}

#[cfg(feature = "wgpu")]
fn wgpu_about(index: usize) -> About {
    let Some(adapter) = backend_wgpu::adapters().into_iter().nth(index) else { return About::default() };
    let passed_over =
        (!adapter.is_discrete).then(|| format!("{} is no discrete GPU; --backend wgpu takes it", adapter.name));
    About { kind: adapter.kind, features: adapter.features, passed_over }
}

/// What `--backend` takes.
pub(crate) fn names() -> Vec<&'static str> {
    std::iter::once(AUTO).chain(ALL.iter().map(|entry| entry.name)).collect()
}

impl Entry {
    /// Opens a device.
    ///
    /// # Errors
    /// When there is no such device, or it does not start.
    pub(crate) fn device(&self, index: usize) -> Result<Arc<dyn Backend>> {
        let count = (self.count)()?;
        if index >= count {
            let have = format!("there is no device {index}; numbers go from 0 to {}", count.saturating_sub(1));
            return Err(Error::backend(self.name, have));
        }
        (self.open)(index)
    }
}

/// The backend of that name; for [`AUTO`] the first whose device `index` opens. Says which and why, where it is not the expected one.
///
/// # Errors
/// When the device does not open; for [`AUTO`] when none does, with every reason.
pub(crate) fn choose(ui: &Ui, name: &str, index: usize) -> Result<&'static Entry> {
    if let Some(entry) = ALL.iter().find(|entry| entry.name == name) {
        tell_first_use(ui, &*entry.device(index)?);
        return Ok(entry);
    }
    let mut reasons: Vec<String> = Vec::new();
    for entry in ALL {
        let passed_over = (entry.about)(index).passed_over;
        let device = match passed_over {
            Some(reason) => Err(Error::backend(entry.name, reason)),
            None => entry.device(index),
        };
        match device {
            Ok(backend) => {
                let why = match reasons.as_slice() {
                    [] => "it comes first".to_string(),
                    reasons => reasons.join("; "),
                };
                let text = format!("backend {} ({}): {why}", entry.name, backend.device_name());
                if entry.name == "cpu" {
                    ui.note(text)
                } else {
                    ui.tell(text)
                }
                tell_first_use(ui, &*backend);
                return Ok(entry);
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(Error::backend(AUTO, reasons.join("; ")))
}

fn tell_first_use(ui: &Ui, backend: &dyn Backend) {
    if let Some(text) = backend.first_use() {
        ui.tell(format!("{}: {text}", backend.name()));
    }
}
