//! What holds the device's memory outside of segments: context, modules, scratch; and what NVML says.
//!
//! The bridge from the bytes of tensors to the figure of nvidia-smi. Each step is the difference of two readings of the
//! driver's free memory, so that another process that takes memory between them shows in it.

use std::sync::atomic::{AtomicU64, Ordering};

use memcore::{Error, Result};
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use crate::driver::{NAME, Queue};

/// Memory that the backend itself made the driver take, step by step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySteps {
    /// The scratch and what the driver rounds it up to.
    pub scratch_bytes: u64,
    /// Kernels that were loaded so far.
    pub modules_bytes: u64,
    /// What cuBLASLt took when it was opened; 0 without it.
    pub libraries_bytes: u64,
}

/// What NVML says; the figures of nvidia-smi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmlFigures {
    /// Bytes of the device in use, by anyone.
    pub device_used_bytes: u64,
    /// Bytes that the device has.
    pub device_total_bytes: u64,
    /// Bytes of this process: segments, context, modules and all. `None` where the system does not say (in containers,
    /// for one, process numbers differ).
    pub process_bytes: Option<u64>,
}

/// Readings of the driver's free memory around the steps.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) scratch_bytes: AtomicU64,
    pub(crate) modules_bytes: AtomicU64,
    pub(crate) libraries_bytes: AtomicU64,
}

impl Steps {
    pub(crate) fn read(&self) -> MemorySteps {
        MemorySteps {
            scratch_bytes: self.scratch_bytes.load(Ordering::Relaxed),
            modules_bytes: self.modules_bytes.load(Ordering::Relaxed),
            libraries_bytes: self.libraries_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Does `step` and adds what it took of the driver's free memory to `sum`.
pub(crate) fn measured<T, E>(queue: &Queue, sum: &AtomicU64, step: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let before = queue.memory_info().ok();
    let done = step()?;
    if let (Some((before, _)), Ok((after, _))) = (before, queue.memory_info()) {
        sum.fetch_add(before.saturating_sub(after), Ordering::Relaxed);
    }
    Ok(done)
}

fn failed(error: NvmlError) -> Error {
    Error::backend(NAME, format!("NVML, which has nvidia-smi's figures: {error}"))
}

/// Asks NVML of the device with this UUID.
pub(crate) fn nvml(uuid: [u8; 16]) -> Result<NvmlFigures> {
    let nvml = Nvml::init().map_err(failed)?;
    figures_of(&nvml.device_by_uuid(uuid_text(uuid)).map_err(failed)?)
}

/// Name and figures of every device that NVML knows. No device is opened: no memory is taken for it.
///
/// # Errors
/// When NVML is not there, or does not answer.
pub fn nvml_devices() -> Result<Vec<(String, NvmlFigures)>> {
    let nvml = Nvml::init().map_err(failed)?;
    let count = nvml.device_count().map_err(failed)?;
    let device = |index| {
        let device = nvml.device_by_index(index).map_err(failed)?;
        Ok((device.name().map_err(failed)?, figures_of(&device)?))
    };
    (0..count).map(device).collect()
}

fn figures_of(device: &nvml_wrapper::Device<'_>) -> Result<NvmlFigures> {
    let memory = device.memory_info().map_err(failed)?;
    let own = std::process::id();
    let processes = device.running_compute_processes().unwrap_or_default();
    let process_bytes =
        processes.iter().find(|process| process.pid == own).and_then(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        });
    Ok(NvmlFigures { device_used_bytes: memory.used, device_total_bytes: memory.total, process_bytes })
}

/// As NVML names devices: `GPU-8-4-4-4-12` hexadecimal digits.
fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (i, byte) in uuid.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&i) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_nvmls_names() {
        let uuid = std::array::from_fn(|i| i as u8 * 17);
        assert_eq!(uuid_text(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
