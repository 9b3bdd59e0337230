//! The C library's own functions, which the functions here replace.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of the C library. It is looked up at its first call.
pub(super) struct Real {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Real {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Returns its address; null if this C library has no such function.
    pub(super) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known != 0 {
            return known as *mut c_void;
        }
        // SAFETY: the name ends with a zero; the answer is an address or null.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found as usize, Ordering::Relaxed);
        found
    }
}

/// Calls the C library's function of this name and type. Returns -1 and `ENOSYS` if it does not exist.
macro_rules! real {
    ($name:ident as fn($($type:ty),*) -> $result:ty, $missing:expr; $($argument:expr),*) => {{
        static REAL: $crate::files::real::Real = {
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            $crate::files::real::Real::new(NAME)
        };
        let address = REAL.address();
        if address.is_null() {
            $crate::files::real::set_errno(libc::ENOSYS);
            $missing
        } else {
            // SAFETY: the C library's function of this name has this type, and gets what its caller gave.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(address);
                function($($argument),*)
            }
        }
    }};
}
pub(super) use real;

/// Sets the error of this thread.
pub(super) fn set_errno(number: c_int) {
    // SAFETY: the C library gives each thread a place of its own.
    unsafe { *libc::__errno_location() = number };
}

/// Returns the error of this thread.
pub(super) fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
