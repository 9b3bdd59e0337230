//! Errors and versions.

use std::ffi::{c_char, c_int};

use crate::answer::{last_error, meaning, runtime, runtime_name};
use crate::argument::Out;
use crate::wheel;

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> c_int {
    last_error(true)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> c_int {
    last_error(false)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: c_int) -> *const c_char {
    runtime_name(code)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: c_int) -> *const c_char {
    meaning(code).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaDriverGetVersion(version: Out<c_int>) -> c_int {
    runtime(version.set(wheel::cuda()))
}

#[unsafe(no_mangle)]
extern "C" fn cudaRuntimeGetVersion(version: Out<c_int>) -> c_int {
    runtime(version.set(wheel::cuda()))
}
