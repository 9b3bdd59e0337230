//! The available devices.

use memcore::{Error, Result};
use opencl3::device::{
    CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, Device,
};

use crate::{NAME, failed};

/// Properties of a device that are known without opening a context on it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name, as the driver gives it.
    pub name: String,
    /// `processor`, `discrete`, `integrated` or `other`.
    pub kind: &'static str,
    /// True if its memory is the host's.
    pub host_memory: bool,
    /// True if it has 64-bit floats.
    pub doubles: bool,
    /// True if the compiler has an option for correctly rounded quotients and roots.
    pub(crate) exact_division: bool,
    /// Total memory.
    pub total_bytes: u64,
    /// The largest buffer.
    pub max_segment_bytes: u64,
    /// Alignment: every address of a buffer is a multiple of this many bytes.
    pub(crate) alignment: u64,
    pub(crate) device: Device,
}

/// Returns the devices of all drivers, in their order.
///
/// # Errors
/// No OpenCL library can be loaded, it has no driver, or no driver has a device.
pub fn devices() -> Result<Vec<Found>> {
    let platforms = opencl3::platform::get_platforms()
        .map_err(|error| failed("no driver for OpenCL (libOpenCL and one are needed, such as the packages ocl-icd-libopencl1 and pocl-opencl-icd)", error))?;
    let of_platform =
        |platform: &opencl3::platform::Platform| platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default();
    let ids = platforms.iter().flat_map(of_platform);
    let found: Vec<Found> = ids.filter_map(|id| Found::from_device(Device::new(id)).ok()).collect();
    if found.is_empty() {
        return Err(Error::backend(NAME, "its drivers have no device"));
    }
    Ok(found)
}

impl Found {
    fn from_device(device: Device) -> std::result::Result<Self, opencl3::error_codes::ClError> {
        let host_memory = device.host_unified_memory().unwrap_or(false);
        let kind = match device.dev_type()? {
            kind if kind & CL_DEVICE_TYPE_CPU != 0 => "software",
            kind if kind & CL_DEVICE_TYPE_GPU == 0 => "other",
            _ if host_memory => "integrated",
            _ => "discrete",
        };
        let config = device.single_fp_config().unwrap_or(0);
        Ok(Self {
            name: device.name()?.trim().to_string(),
            kind,
            host_memory: host_memory || kind == "software",
            doubles: device.double_fp_config().is_ok_and(|config| config != 0),
            exact_division: config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0,
            total_bytes: device.global_mem_size()?,
            max_segment_bytes: device.max_mem_alloc_size()?,
            // OpenCL reports it in bits.
            alignment: u64::from(device.mem_base_addr_align()? / 8).next_power_of_two(),
            device,
        })
    }
}
