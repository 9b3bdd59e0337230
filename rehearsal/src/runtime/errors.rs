//! Errors.

use std::ffi::{c_char, c_int};

use crate::answer::{last_error, meaning, runtime_name};

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
