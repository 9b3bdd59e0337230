//! cuBLAS: handles. All products are no-ops. PyTorch gives cuBLAS its workspaces, so that their sizes need not be known
//! here.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::argument::Out;
use crate::handles;

/// `CUBLAS_STATUS_SUCCESS` and others.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;

/// Settings of a handle.
#[derive(Clone, Copy, Debug, Default)]
struct Handle {
    stream: usize,
    pointer_mode: c_int,
    atomics_mode: c_int,
    math_mode: c_int,
    multiprocessors: c_int,
}

static HANDLES: LazyLock<Mutex<HashMap<usize, Handle>>> = LazyLock::new(Mutex::default);

fn handles_of_program() -> MutexGuard<'static, HashMap<usize, Handle>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
extern "C" fn cublasCreate_v2(handle: Out<usize>) -> c_int {
    if crate::context::used().is_err() {
        return NOT_INITIALIZED;
    }
    let made = handles::new();
    handles_of_program().insert(made, Handle::default());
    handle.set(made).map_or(INVALID_VALUE, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: usize) -> c_int {
    handles_of_program().remove(&handle).map_or(NOT_INITIALIZED, |_| SUCCESS)
}

/// Defines pairs of functions that set and get a setting of a handle.
macro_rules! figures {
    ($($set:ident $get:ident $field:ident: $type:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $set(handle: usize, value: $type) -> c_int {
            handles_of_program().get_mut(&handle).map_or(NOT_INITIALIZED, |handle| {
                handle.$field = value;
                SUCCESS
            })
        }

        #[unsafe(no_mangle)]
        extern "C" fn $get(handle: usize, value: Out<$type>) -> c_int {
            let found = handles_of_program().get(&handle).map(|handle| handle.$field);
            match found.map(|found| value.set(found)) {
                None => NOT_INITIALIZED,
                Some(Ok(())) => SUCCESS,
                Some(Err(_)) => INVALID_VALUE,
            }
        }
    )*};
}

// For build.rs: exported_names!(cublasSetStream_v2, cublasGetStream_v2, cublasSetPointerMode_v2,
// cublasGetPointerMode_v2, cublasSetAtomicsMode, cublasGetAtomicsMode, cublasSetMathMode, cublasGetMathMode,
// cublasSetSmCountTarget, cublasGetSmCountTarget)
figures! {
    cublasSetStream_v2 cublasGetStream_v2 stream: usize;
    cublasSetPointerMode_v2 cublasGetPointerMode_v2 pointer_mode: c_int;
    cublasSetAtomicsMode cublasGetAtomicsMode atomics_mode: c_int;
    cublasSetMathMode cublasGetMathMode math_mode: c_int;
    cublasSetSmCountTarget cublasGetSmCountTarget multiprocessors: c_int;
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetWorkspace_v2(handle: usize, _workspace: usize, _bytes: usize) -> c_int {
    if handles_of_program().contains_key(&handle) { SUCCESS } else { NOT_INITIALIZED }
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    name(status)
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    name(status)
}

/// Name of a status.
pub(crate) fn name(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"CUBLAS_STATUS_SUCCESS",
        1 => c"CUBLAS_STATUS_NOT_INITIALIZED",
        3 => c"CUBLAS_STATUS_ALLOC_FAILED",
        7 => c"CUBLAS_STATUS_INVALID_VALUE",
        15 => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => c"CUBLAS_STATUS_INTERNAL_ERROR",
    };
    name.as_ptr()
}
