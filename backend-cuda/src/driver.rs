//! The driver behind safe calls: the functions that this crate needs, with errors distinguished.
//!
//! cudarc's functions panic if the library or a symbol is missing. So nothing here is called before [`Driver::load`]
//! has found both.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;

use cudarc::driver::sys::{self, CUresult};
use memcore::Error;

use crate::libraries;

/// The name on the command line.
pub(crate) const NAME: &str = "cuda";

/// The driver's status code other than success, with the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {} ({})", name(*.code), describe(*.code))]
pub(crate) struct DriverError {
    pub(crate) call: &'static str,
    pub(crate) code: CUresult,
}

impl DriverError {
    /// True if memory ran out.
    pub(crate) fn is_out_of_memory(self) -> bool {
        self.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    /// True if the context is lost: this process cannot use the device again.
    fn is_fatal(self) -> bool {
        matches!(
            self.code,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
                | CUresult::CUDA_ERROR_LAUNCH_FAILED
                | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
                | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
                | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
                | CUresult::CUDA_ERROR_INVALID_PC
                | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
                | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
                | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | CUresult::CUDA_ERROR_ASSERT
                | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        )
    }
}

impl DriverError {
    /// Returns the error with the activity in which it occurred.
    pub(crate) fn while_at(self, what: &str) -> Error {
        Error::backend(NAME, format!("{what}: {}", self.explained()))
    }

    fn explained(self) -> String {
        if self.is_fatal() {
            return format!("{self}; a kernel failed and the device is lost to this process: start the program again");
        }
        self.to_string()
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Error::backend(NAME, error.explained())
    }
}

/// A result of the driver.
pub(crate) type Driven<T> = Result<T, DriverError>;

/// Calls the driver; an error names the call.
macro_rules! driven {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: `Driver::load` has found the library and this symbol; what is passed is stated where this stands.
        let code = unsafe { ::cudarc::driver::sys::$function($($argument),*) };
        crate::driver::check(stringify!($function), code)
    }};
}
pub(crate) use driven;

/// Returns success, or the error with its call.
pub(crate) fn check(call: &'static str, code: CUresult) -> Driven<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(DriverError { call, code }) }
}

/// The driver's text for a code; the number if it has no text.
fn text(code: CUresult, get: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the function only writes a pointer to a constant string of its own, or leaves it null.
    let known = unsafe { get(code, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
    if known {
        // SAFETY: the driver gave a string that ends with 0 and lives as long as the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        format!("error {}", code as u32)
    }
}

fn name(code: CUresult) -> String {
    text(code, sys::cuGetErrorName)
}

fn describe(code: CUresult) -> String {
    text(code, sys::cuGetErrorString)
}

/// Every symbol that this crate calls. A driver that lacks one is too old and is refused.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuEventDestroy_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
];

/// True if the driver, which must be loaded, has this function.
pub(crate) fn has_symbol(symbol: &str) -> bool {
    // SAFETY: it does not panic where the library was found before; the symbol is looked up and not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()).is_ok() }
}

/// Proof that the driver is present, complete and initialised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driver {
    /// Version that the driver reports: 1000·major + 10·minor of the newest CUDA that it supports.
    pub(crate) version: i32,
}

impl Driver {
    /// Finds and initialises the driver.
    ///
    /// # Errors
    /// The missing part, and how to get it.
    pub(crate) fn load() -> Result<Self, Error> {
        // SAFETY: only tries to open the library; its initialisers are the driver's own.
        if !unsafe { sys::is_culib_present() } {
            let help = "no NVIDIA driver: libcuda.so.1 was not found; it comes with the driver of an NVIDIA GPU \
                        (Debian: apt install nvidia-driver; in a container: docker run --gpus all)";
            return Err(Error::backend(NAME, help));
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| !has_symbol(symbol)) {
            let help = format!("the NVIDIA driver is too old: it has no {symbol}; version 525 or later is needed");
            return Err(Error::backend(NAME, help));
        }
        let mut version = 0;
        driven!(cuInit(0)).map_err(no_device)?;
        driven!(cuDriverGetVersion(&mut version))?;
        let driver = Self { version };
        if driver.cuda_major() < libraries::OLDEST {
            let help = format!(
                "the NVIDIA driver is too old: it runs CUDA {}.{}, and what NVRTC of CUDA {} compiles needs version 525 or \
                 later",
                version / 1000,
                version % 1000 / 10,
                libraries::OLDEST
            );
            return Err(Error::backend(NAME, help));
        }
        Ok(driver)
    }

    /// Major number of the newest CUDA that the driver supports.
    pub(crate) fn cuda_major(self) -> u32 {
        self.version.unsigned_abs() / 1000
    }

    /// Number of devices.
    pub(crate) fn count(self) -> Driven<usize> {
        let mut count = 0;
        driven!(cuDeviceGetCount(&mut count))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// Explains why the driver starts but finds no device.
fn no_device(error: DriverError) -> Error {
    let help = match error.code {
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "the NVIDIA driver is there and finds no GPU (CUDA_VISIBLE_DEVICES may hide it)"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the NVIDIA driver's library and its kernel module are of different versions: restart the machine"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            "the system is not ready: on machines with NVSwitch the service nvidia-fabricmanager has to run"
        }
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "libcuda.so is the toolkit's stub, not a driver: take it off the library path"
        }
        _ => return error.into(),
    };
    Error::backend(NAME, help)
}

/// Properties of a device, read once.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    pub(crate) device: sys::CUdevice,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) total_bytes: u64,
    /// Compute capability, major and minor.
    pub(crate) capability: (u32, u32),
    /// Number of multiprocessors.
    pub(crate) processors: u32,
    /// True if memory can be mapped to reserved addresses.
    pub(crate) virtual_memory: bool,
}

impl Properties {
    pub(crate) fn read(_: Driver, ordinal: usize) -> Driven<Self> {
        let mut device = 0;
        driven!(cuDeviceGet(&mut device, ordinal as c_int))?;
        let mut name = [0; 128];
        driven!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device))?;
        // SAFETY: the buffer is longer than what the driver may write, and was zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut total = 0;
        driven!(cuDeviceTotalMem_v2(&mut total, device))?;
        let mut uuid = MaybeUninit::<sys::CUuuid>::zeroed();
        driven!(cuDeviceGetUuid_v2(uuid.as_mut_ptr(), device))?;
        // SAFETY: plain bytes, initialised to zero at the least.
        let uuid = unsafe { uuid.assume_init() }.bytes.map(|byte| byte as u8);
        use sys::CUdevice_attribute as A;
        let get = |attribute| attribute_of(device, attribute);
        Ok(Self {
            device,
            name,
            uuid,
            total_bytes: total as u64,
            capability: (
                get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            processors: get(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
            virtual_memory: get(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0,
        })
    }
}

fn attribute_of(device: sys::CUdevice, attribute: sys::CUdevice_attribute) -> Driven<u32> {
    let mut value = 0;
    driven!(cuDeviceGetAttribute(&mut value, attribute, device))?;
    Ok(u32::try_from(value).unwrap_or(0))
}
