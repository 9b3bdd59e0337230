//! The one table of devices of this program. **To add a backend**: a cargo feature, and an entry in [`BACKENDS`].

use std::sync::{Arc, OnceLock};

#[cfg(any(feature = "cpu", feature = "cuda"))]
use lab::backends::DeviceMemory;
#[cfg(feature = "cpu")]
use lab::backends::PROCESSOR;
use lab::backends::{About, Entry, PAPER};
use memcore::Profile;
use memcore::backend::Meta;
use memcore::profile::Release;
#[cfg(feature = "wgpu")]
use memcore::{Error, Result};

/// Table of backends of this process.
static IN_FORCE: OnceLock<&'static [Entry]> = OnceLock::new();

/// Sets the table; the first one stays.
pub(crate) fn set(backends: &'static [Entry]) {
    IN_FORCE.get_or_init(|| backends);
}

/// Returns the backends of this process, in order of preference.
pub(crate) fn all() -> &'static [Entry] {
    IN_FORCE.get().copied().unwrap_or(BACKENDS)
}

/// Every backend of this build, in order of preference.
pub const BACKENDS: &[Entry] = &[
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
        // WebGPU does not report it.
        memory: Vec::new,
    },
    #[cfg(feature = "cpu")]
    Entry {
        name: "cpu",
        count: || Ok(1),
        open: |_| Ok(Arc::new(backend_cpu::Cpu::new()?)),
        about: |_| About { kind: PROCESSOR, ..About::default() },
        memory: cpu_memory,
    },
    // After the processor, so that it is used only when named: its kernels are the slow ones.
    #[cfg(feature = "opencl")]
    Entry {
        name: "opencl",
        count: backend_opencl::OpenCl::count,
        open: |i| Ok(Arc::new(backend_opencl::OpenCl::open(i)?)),
        about: opencl_about,
        // OpenCL does not report it.
        memory: Vec::new,
    },
    Entry {
        name: Meta::NAME,
        count: || Ok(1),
        open: |_| Ok(Arc::new(Meta::default())),
        about: |_| About { kind: PAPER, ..About::default() },
        memory: Vec::new,
    },
];

/// Prepares the process, before anything else: turns off Mesa's layer that sorts Vulkan devices, which complains on stderr without a
/// desktop. This program sorts them itself.
pub(crate) fn prepare() {
    #[cfg(all(feature = "wgpu", target_os = "linux"))]
    // SAFETY: called first in `main`: no other thread exists that could read the environment meanwhile.
    unsafe {
        std::env::set_var("NODEVICE_SELECT", "1");
    }
}

#[cfg(feature = "cpu")]
fn cpu_memory() -> Vec<DeviceMemory> {
    let memory = backend_cpu::host_memory();
    let used_bytes = memory.map(|m| m.total_bytes.saturating_sub(m.free_bytes));
    let total_bytes = memory.map(|m| m.total_bytes);
    vec![DeviceMemory { backend: "cpu".into(), name: "host".into(), used_bytes, total_bytes }]
}

/// Returns the memory that NVML reports, without making a context, which would take memory itself.
#[cfg(feature = "cuda")]
fn cuda_memory() -> Vec<DeviceMemory> {
    let device = |(name, figures): (String, backend_cuda::NvmlFigures)| DeviceMemory {
        backend: "cuda".into(),
        name,
        used_bytes: Some(figures.device_used_bytes),
        total_bytes: Some(figures.device_total_bytes),
    };
    backend_cuda::nvml_devices().unwrap_or_default().into_iter().map(device).collect()
}

/// Counts the adapters of all drivers.
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
        (!adapter.is_discrete).then(|| format!("{} is not a discrete GPU; --backend wgpu takes it", adapter.name));
    About { kind: adapter.kind, features: adapter.features, passed_over }
}

#[cfg(feature = "opencl")]
fn opencl_about(index: usize) -> About {
    let found = backend_opencl::devices().ok().and_then(|devices| devices.into_iter().nth(index));
    found.map_or_else(About::default, |found| About {
        kind: found.kind,
        features: Vec::from_iter(found.doubles.then_some("f64")),
        passed_over: None,
    })
}

/// Parses the name of a profile: that of our own kernels on a backend, or of a release.
pub(crate) fn profile(text: &str) -> std::result::Result<String, String> {
    let ours: Vec<String> =
        all().iter().filter(|entry| entry.computes()).map(|entry| format!("native:{}", entry.name)).collect();
    if Profile::named(text).is_some() || Release::named(text).is_some() || ours.iter().any(|name| name == text) {
        return Ok(text.into());
    }
    let nearest = Profile::nearest(text);
    Err(nearest.map_or_else(
        || format!("expected native, {}, or a release such as torch-2.11", ours.join(", ")),
        |nearest| nearest.to_string(),
    ))
}

/// Returns the values of `--backend`.
pub(crate) fn names() -> Vec<&'static str> {
    std::iter::once(lab::backends::AUTO).chain(all().iter().map(|entry| entry.name)).collect()
}
