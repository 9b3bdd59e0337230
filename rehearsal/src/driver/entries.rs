//! Functions by their names, and names of errors.

use std::ffi::{c_char, c_int};

use crate::answer::{Code, driver, driver_name, meaning};
use crate::argument::{In, Out, Text};
use crate::{entry, log};

const FOUND: c_int = 0;
const NO_SUCH_SYMBOL: c_int = 1;

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: Text,
    function: Out<usize>,
    version: c_int,
    _flags: u64,
    status: Out<c_int>,
) -> c_int {
    driver(name.get().and_then(|name| {
        let found = entry::find(&name, version);
        function.set(found.unwrap_or(0))?;
        status.offer(if found.is_some() { FOUND } else { NO_SUCH_SYMBOL });
        if found.is_none() {
            log::once("no_such_function", &name);
        }
        found.map(|_| ()).ok_or(Code::NOT_FOUND)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(name: Text, function: Out<usize>, version: c_int, flags: u64) -> c_int {
    cuGetProcAddress_v2(name, function, version, flags, Out::at(0))
}

/// Number of the table for which CUPTI asks, the library by which PyTorch's profiler watches a card (seen with CUPTI 13.0).
const PROFILER: [u8; 16] =
    [0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5, 0xf7, 0x4b];

/// Number of the table for which NVRTC asks, which compiles kernels and does so without it (seen with NVRTC 13.0).
const COMPILER: [u8; 16] =
    [0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28];

/// Private tables that only NVIDIA's own libraries know. There are none here: a real CUDA runtime that asks for one
/// fails, and a profiler sees no kernels.
#[unsafe(no_mangle)]
extern "C" fn cuGetExportTable(_table: Out<usize>, id: In<[u8; 16]>) -> c_int {
    match id.get() {
        Ok(id) if id == COMPILER => {}
        Ok(id) if id == PROFILER => log::once("profiler", "a profiler asked the driver for private tables"),
        _ => log::once("static_runtime", "a CUDA runtime that is not replaced asked the driver"),
    }
    driver(Err(Code::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: c_int, name: Out<*const c_char>) -> c_int {
    let found = driver_name(code);
    name.offer(found.map_or(std::ptr::null(), std::ffi::CStr::as_ptr));
    driver(found.map(|_| ()).ok_or(Code::INVALID_VALUE))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: c_int, text: Out<*const c_char>) -> c_int {
    driver(text.set(meaning(code).as_ptr()))
}
