//! The real libraries of the wheel. They are asked only for their versions, which they know without a device.

use std::ffi::{CStr, CString, c_int, c_void};

use crate::settings::settings;

/// Release of CUDA, as in 12080: the one in the settings, else that of the runtime in this process.
pub(crate) fn cuda() -> c_int {
    if let Some(version) = settings().cuda {
        // `12` alone stands for the release for which most wheels of CUDA 12 are made.
        return if version == 12000 { 12080 } else { version };
    }
    static FOUND: std::sync::OnceLock<c_int> = std::sync::OnceLock::new();
    let found = FOUND.get().copied().or_else(|| {
        let found = runtime_version()?;
        Some(*FOUND.get_or_init(|| found))
    });
    found.unwrap_or(13000)
}

/// True if structures are those of CUDA 12.
pub(crate) fn is_cuda_12() -> bool {
    cuda() < 13000
}

fn runtime_version() -> Option<c_int> {
    let function = function("libcudart.so.", c"cudaRuntimeGetVersion")?;
    let mut version = 0;
    // SAFETY: the function of this name in the CUDA runtime is documented to take a pointer to an int.
    let function: extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(function) };
    (function(&raw mut version) == 0).then_some(version)
}

/// Calls a function without arguments in a library of the wheel, and returns its result.
pub(crate) fn number(library: &str, name: &CStr) -> Option<usize> {
    let function = function(library, name)?;
    // SAFETY: callers name functions that are documented to take nothing and return a size.
    let function: extern "C" fn() -> usize = unsafe { std::mem::transmute(function) };
    Some(function())
}

/// Calls a function that writes an int in a library of the wheel, and returns the int.
pub(crate) fn written(library: &str, name: &CStr) -> Option<c_int> {
    let function = function(library, name)?;
    let mut value = 0;
    // SAFETY: callers name functions that are documented to take a pointer to an int alone.
    let function: extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(function) };
    (function(&raw mut value) == 0).then_some(value)
}

/// Finds a function of a library that is already loaded, by the beginning of its file name.
pub(crate) fn function(library: &str, name: &CStr) -> Option<*mut c_void> {
    let mut search = Search { beginning: library.as_bytes(), path: None };
    // SAFETY: the callback has the signature that is asked for, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    let path = search.path?;
    // SAFETY: a text that ends with a zero; nothing is loaded that is not loaded already.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let found = crate::lookups::system(handle, name);
    (!found.is_null()).then_some(found)
}

struct Search<'a> {
    beginning: &'a [u8],
    path: Option<CString>,
}

extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: `function` passes its `Search`, which nothing else uses meanwhile; the loader passes a good record.
    let (search, info) = unsafe { (&mut *search.cast::<Search<'_>>(), &*info) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the loader's names end with a zero.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) };
    let file = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if file.starts_with(search.beginning) {
        search.path = Some(path.to_owned());
        return 1;
    }
    0
}
