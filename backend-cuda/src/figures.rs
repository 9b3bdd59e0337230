//! What holds the device's memory outside of segments: context, kernels, libraries, scratch; and what NVML says.
//!
//! The bridge from the bytes of tensors to the figure of nvidia-smi. Each step is the difference of two readings around
//! it, so that another process that takes memory between them shows in it. What the driver takes at other times — for
//! staging, for the first launch of a kernel — is in no step: it stays unexplained.

use memcore::backend::Overhead;
use memcore::{Error, Result};
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use crate::driver::{Driven, NAME, Properties};
use crate::queue::Queue;

/// Memory that the backend itself made the driver take, step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySteps {
    /// In use before there was a context: other processes, and what the device keeps for itself. `None` where NVML does
    /// not say; these bytes are in `context_bytes` then.
    pub others_bytes: Option<u64>,
    /// The context and the stream in it.
    pub context_bytes: u64,
    /// The scratch and what the driver rounds it up to.
    pub scratch_bytes: u64,
    /// The files of kernels that were loaded so far, each by its name.
    pub modules: Vec<(&'static str, u64)>,
    /// What cuBLASLt took when it was opened, and when it met a shape for the first time; 0 without it.
    pub libraries_bytes: u64,
    /// Graphs of kernels; 0 unless they are used.
    pub graphs_bytes: u64,
}

impl MemorySteps {
    /// The same as parts of the driver's figure.
    pub(crate) fn overheads(&self) -> Vec<Overhead> {
        let others = self.others_bytes.map(|bytes| Overhead { name: "other processes", bytes });
        let context = if others.is_some() { "context" } else { "context, other processes" };
        let kernels = self.modules.iter().map(|(_, bytes)| bytes).sum();
        let own = [
            Overhead { name: context, bytes: self.context_bytes },
            Overhead { name: "kernels", bytes: kernels },
            Overhead { name: "cuBLASLt", bytes: self.libraries_bytes },
            Overhead { name: "graphs", bytes: self.graphs_bytes },
            Overhead { name: "scratch", bytes: self.scratch_bytes },
        ];
        others.into_iter().chain(own).collect()
    }
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

/// Opens the device's context and writes down what it took.
pub(crate) fn opened(properties: &Properties) -> Driven<(Queue, MemorySteps)> {
    // Before there is a context only NVML can say what is in use.
    let nvml = library().ok();
    let in_use = || Some(device(nvml.as_ref()?, properties.uuid).ok()?.memory_info().ok()?.used);
    let before = in_use();
    let queue = Queue::new(properties.device)?;
    let (free, total) = queue.memory_info()?;
    // The driver's own figure is the one that the parts add up to: NVML counts what the device keeps for itself.
    let now = total - free;
    let taken = before.zip(in_use()).map(|(before, after)| after.saturating_sub(before).min(now));
    let steps = MemorySteps {
        others_bytes: taken.map(|context| now - context),
        context_bytes: taken.unwrap_or(now),
        ..MemorySteps::default()
    };
    Ok((queue, steps))
}

/// Does `step`, and says what it took of the driver's free memory.
pub(crate) fn measured<T, E>(queue: &Queue, step: impl FnOnce() -> Result<T, E>) -> Result<(T, u64), E> {
    let before = queue.memory_info().ok();
    let done = step()?;
    let after = queue.memory_info().ok();
    let taken = before.zip(after).map_or(0, |((before, _), (after, _))| before.saturating_sub(after));
    Ok((done, taken))
}

/// Where a driver is, NVML is under this name; the one without a number comes with development files.
fn library() -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().or_else(|_| Nvml::init())
}

fn failed(error: NvmlError) -> Error {
    Error::backend(NAME, format!("NVML, which has nvidia-smi's figures: {error}"))
}

/// Asks NVML of the device with this UUID.
pub(crate) fn nvml(uuid: [u8; 16]) -> Result<NvmlFigures> {
    let nvml = library().map_err(failed)?;
    figures_of(&device(&nvml, uuid).map_err(failed)?)
}

/// Name and figures of every device that NVML knows. No device is opened: no memory is taken for it.
///
/// # Errors
/// When NVML is not there, or does not answer.
pub fn nvml_devices() -> Result<Vec<(String, NvmlFigures)>> {
    let nvml = library().map_err(failed)?;
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

/// NVML's device with this UUID: a whole one, or the part of one that MIG made a device of its own.
fn device(nvml: &Nvml, uuid: [u8; 16]) -> Result<nvml_wrapper::Device<'_>, NvmlError> {
    nvml.device_by_uuid(uuid_text("GPU", uuid)).or_else(|_| nvml.device_by_uuid(uuid_text("MIG", uuid)))
}

/// As NVML names devices: `GPU-8-4-4-4-12` hexadecimal digits.
fn uuid_text(kind: &str, uuid: [u8; 16]) -> String {
    let mut text = String::from(kind);
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
        assert_eq!(uuid_text("GPU", uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
