//! Tells that a change found no room. What a script changes goes to another disk than it would, and what fails there may leave no trace.

use std::ffi::{CStr, c_char, c_int};

use super::as_it_is;
use super::real::{errno, set_errno};

/// Passes on the result of a call that changes a path, and tells that it failed for want of room.
pub(super) fn told(path: *const c_char, result: c_int) -> c_int {
    if result < 0 {
        tell(path);
    }
    result
}

/// The same for a call that returns a pointer.
pub(super) fn told_of<T>(path: *const c_char, result: *mut T) -> *mut T {
    if result.is_null() {
        tell(path);
    }
    result
}

fn tell(path: *const c_char) {
    let number = errno();
    if !matches!(number, libc::ENOSPC | libc::EDQUOT) || path.is_null() || as_it_is::holds() {
        return;
    }
    // The log is opened by a function that is answered here.
    let _as_it_is = as_it_is::as_it_is();
    // SAFETY: callers of the C library pass texts that end with a zero.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    crate::log::once("no_room", &path);
    set_errno(number);
}
