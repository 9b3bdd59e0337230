//! Library for C, in the caller's process: `capi/include/vramlab.h` declares it.
//!
//! Texts go in, a text comes out. Nothing of Rust crosses the border: no panic, no allocation that the caller would have to free by itself.

use std::ffi::{CStr, CString, c_char};
use std::panic::catch_unwind;
use std::ptr;

/// The first number changes when a program that was built against an older header would be misled.
const VERSION: &CStr = c"1.0";

/// Version of this interface: a text that lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_version() -> *const c_char {
    VERSION.as_ptr()
}

/// What a training takes, as JSON (`vramlab-estimate-1`); null only if there is no memory for the answer. See the header.
///
/// # Safety
/// Both arguments are null, or texts that end with a zero and do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramlab_estimate(configuration: *const c_char, arguments: *const c_char) -> *mut c_char {
    let answer = catch_unwind(|| {
        // SAFETY: the caller's promise.
        let (configuration, arguments) = unsafe { (text(configuration), text(arguments)) };
        match (configuration, arguments) {
            (Ok(Some(configuration)), Ok(arguments)) => {
                cli::estimate(configuration, arguments.unwrap_or("{}"), cli::BACKENDS)
            }
            (Ok(None), _) => problem("usage", "configuration: null"),
            _ => problem("usage", "configuration and arguments must be UTF-8"),
        }
    });
    let answer = answer.unwrap_or_else(|_| problem("internal", "an error of vramlab"));
    CString::new(answer).map_or(ptr::null_mut(), CString::into_raw)
}

/// Frees an answer of [`vramlab_estimate`]; null is ignored.
///
/// # Safety
/// `answer` is null, or an answer that was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramlab_free(answer: *mut c_char) {
    if !answer.is_null() {
        // SAFETY: it was made by `into_raw`, and the caller promises that it is still there.
        drop(unsafe { CString::from_raw(answer) });
    }
}

/// The text at an address; `None` of null.
///
/// # Safety
/// As [`vramlab_estimate`]'s.
unsafe fn text<'a>(address: *const c_char) -> Result<Option<&'a str>, std::str::Utf8Error> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise: it ends with a zero, and lives and stays as it is during the call.
    unsafe { CStr::from_ptr(address) }.to_str().map(Some)
}

fn problem(kind: &str, message: &str) -> String {
    // Both are plain texts of this file.
    format!(r#"{{"schema":"vramlab-estimate-1","error":{{"kind":"{kind}","message":"{message}"}}}}"#)
}
