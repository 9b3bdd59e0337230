//! Memory of the device outside of segments: context, kernels, libraries, scratch; and NVML's figures.
//!
//! These figures connect the bytes of tensors with the figure of nvidia-smi. Each step is the difference of two
//! readings around it, so it includes memory that another process takes between them. Memory that the driver takes at
//! other times (for staging, for the first launch of a kernel) is in no step and stays unexplained.

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
    /// In use before the context existed: other processes, and the device's own part. `None` if NVML does not report
    /// it; these bytes are then in `context_bytes`.
    pub others_bytes: Option<u64>,
    /// The context and the stream in it.
    pub context_bytes: u64,
    /// The scratch, rounded up by the driver.
    pub scratch_bytes: u64,
    /// The kernel files loaded so far, by name.
    pub modules: Vec<(&'static str, u64)>,
    /// Memory that cuBLASLt took when it was opened, and at the first product of each shape; 0 without it.
    pub libraries_bytes: u64,
    /// Memory that cuDNN took from the first convolution or attention on; 0 without it.
    pub cudnn_bytes: u64,
    /// Graphs of kernels; 0 unless they are used.
    pub graphs_bytes: u64,
}

impl MemorySteps {
    /// Returns the steps as parts of the driver's figure.
    pub(crate) fn overheads(&self) -> Vec<Overhead> {
        let others = self.others_bytes.map(|bytes| Overhead { name: "other processes", bytes });
        let context = if others.is_some() { "context" } else { "context, other processes" };
        let kernels = self.modules.iter().map(|(_, bytes)| bytes).sum();
        let own = [
            Overhead { name: context, bytes: self.context_bytes },
            Overhead { name: "kernels", bytes: kernels },
            Overhead { name: "cuBLASLt", bytes: self.libraries_bytes },
            Overhead { name: "cuDNN", bytes: self.cudnn_bytes },
            Overhead { name: "graphs", bytes: self.graphs_bytes },
            Overhead { name: "scratch", bytes: self.scratch_bytes },
        ];
        others.into_iter().chain(own).collect()
    }
}

/// NVML's figures, which are those of nvidia-smi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmlFigures {
    /// Bytes of the device in use by all processes.
    pub device_used_bytes: u64,
    /// Total bytes of the device.
    pub device_total_bytes: u64,
    /// Bytes of this process: segments, context, modules and everything else. `None` if the system does not report it
    /// (for example in containers, where process numbers differ).
    pub process_bytes: Option<u64>,
}

/// Opens the device's context and records the memory that it took.
pub(crate) fn opened(properties: &Properties) -> Driven<(Queue, MemorySteps)> {
    // Before the context exists only NVML can tell what is in use.
    let nvml = library().ok();
    let in_use = || Some(device(nvml.as_ref()?, properties.uuid).ok()?.memory_info().ok()?.used);
    let before = in_use();
    let queue = Queue::new(properties.device)?;
    let (free, total) = queue.memory_info()?;
    // The parts add up to the driver's own figure: NVML also counts the device's own part.
    let now = total - free;
    let taken = before.zip(in_use()).map(|(before, after)| after.saturating_sub(before).min(now));
    let steps = MemorySteps {
        others_bytes: taken.map(|context| now - context),
        context_bytes: taken.unwrap_or(now),
        ..MemorySteps::default()
    };
    Ok((queue, steps))
}

/// Runs `step`, and returns by how much the driver's free memory fell.
pub(crate) fn measured<T, E>(queue: &Queue, step: impl FnOnce() -> Result<T, E>) -> Result<(T, u64), E> {
    let before = queue.memory_info().ok();
    let done = step()?;
    let after = queue.memory_info().ok();
    let taken = before.zip(after).map_or(0, |((before, _), (after, _))| before.saturating_sub(after));
    Ok((done, taken))
}

/// NVML has this name on a machine with a driver; the name without a number comes with development files.
fn library() -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().or_else(|_| Nvml::init())
}

fn failed(error: NvmlError) -> Error {
    Error::backend(NAME, format!("NVML, which has nvidia-smi's figures: {error}"))
}

/// Asks NVML for the figures of the device with this UUID.
pub(crate) fn nvml(uuid: [u8; 16]) -> Result<NvmlFigures> {
    let nvml = library().map_err(failed)?;
    figures_of(&device(&nvml, uuid).map_err(failed)?)
}

/// Name and figures of every device that NVML knows. Opens no device, and so takes no memory.
///
/// # Errors
/// NVML is missing, or does not answer.
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

/// NVML's device with this UUID: a whole device, or a MIG instance.
fn device(nvml: &Nvml, uuid: [u8; 16]) -> Result<nvml_wrapper::Device<'_>, NvmlError> {
    nvml.device_by_uuid(uuid_text("GPU", uuid)).or_else(|_| nvml.device_by_uuid(uuid_text("MIG", uuid)))
}

/// A UUID in NVML's form: `GPU-8-4-4-4-12` hexadecimal digits.
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
