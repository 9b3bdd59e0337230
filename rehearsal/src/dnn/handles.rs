//! Handles, versions, and sizes of the older functions.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::{SUCCESS, status};
use crate::answer::Code;
use crate::argument::{Out, write_text};
use crate::card::{architecture, multiprocessors};
use crate::{handles, log, wheel};

/// Stream of each handle.
static STREAMS: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

#[unsafe(no_mangle)]
extern "C" fn cudnnCreate(handle: Out<usize>) -> c_int {
    let made = handles::new();
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner).insert(made, 0);
    status(crate::context::used().and_then(|_| handle.set(made)))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnDestroy(handle: usize) -> c_int {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetStream(handle: usize, stream: usize) -> c_int {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, stream);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetStream(handle: usize, stream: Out<usize>) -> c_int {
    let found = STREAMS.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).copied();
    status(found.ok_or(Code::INVALID_VALUE).and_then(|found| stream.set(found)))
}

/// Returns the version of the wheel's own library, or one that PyTorch 2.11 comes with.
#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    wheel::number(super::library::FILE, c"cudnnGetVersion").unwrap_or(91900)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetCudartVersion() -> usize {
    wheel::cuda() as usize
}

/// Writes major, minor or patch version, by number.
#[unsafe(no_mangle)]
extern "C" fn cudnnGetProperty(kind: c_int, value: Out<c_int>) -> c_int {
    let version = cudnnGetVersion() as c_int;
    status(match kind {
        0 => value.set(version / 10000),
        1 => value.set(version / 100 % 100),
        2 => value.set(version % 100),
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(code: c_int) -> *const c_char {
    let text = if code == SUCCESS { c"CUDNN_STATUS_SUCCESS" } else { c"CUDNN_STATUS_BAD_PARAM" };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetLastErrorString(text: Out<u8>, capacity: usize) {
    match super::library::library() {
        Some(library) => library.last_error(text, capacity),
        // There may be no room; then there is nothing to report.
        None => write_text(text, capacity, "").unwrap_or_default(),
    }
}

/// Defines version checks for parts of the library.
macro_rules! checks {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            SUCCESS
        }
    )*};
}

// For build.rs: exported_names!(cudnnGraphVersionCheck, cudnnOpsVersionCheck, cudnnCnnVersionCheck,
// cudnnAdvVersionCheck, cudnnQueryRuntimeError)
checks! { cudnnGraphVersionCheck cudnnOpsVersionCheck cudnnCnnVersionCheck cudnnAdvVersionCheck cudnnQueryRuntimeError }

/// Defines functions that return the size of a workspace: 0, which is logged once. Their last argument is the address
/// for the size; the others come before it.
macro_rules! unknown_sizes {
    ($($name:ident($($before:ident)*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($before: usize,)* bytes: Out<usize>) -> c_int {
            let _unread = ($($before,)*);
            log::once("unknown_size", stringify!($name));
            status(bytes.set(0))
        }
    )*};
}

// For build.rs: exported_names!(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize,
// cudnnGetBatchNormalizationBackwardExWorkspaceSize, cudnnGetBatchNormalizationTrainingExReserveSpaceSize,
// cudnnGetCTCLossWorkspaceSize, cudnnGetCTCLossWorkspaceSize_v8, cudnnGetConvolutionForwardWorkspaceSize,
// cudnnGetConvolutionBackwardDataWorkspaceSize, cudnnGetConvolutionBackwardFilterWorkspaceSize)
unknown_sizes! {
    cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(a b c d e f g h);
    cudnnGetBatchNormalizationBackwardExWorkspaceSize(a b c d e f g h i j);
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize(a b c d e);
    cudnnGetCTCLossWorkspaceSize(a b c d e f g h);
    cudnnGetCTCLossWorkspaceSize_v8(a b c d e);
    cudnnGetConvolutionForwardWorkspaceSize(a b c d e f);
    cudnnGetConvolutionBackwardDataWorkspaceSize(a b c d e f);
    cudnnGetConvolutionBackwardFilterWorkspaceSize(a b c d e f);
}

/// Estimated as states of a random generator for each thread that the card can hold.
#[unsafe(no_mangle)]
extern "C" fn cudnnDropoutGetStatesSize(_handle: usize, bytes: Out<usize>) -> c_int {
    // 6,488,064 bytes on an H100 with cuDNN 9.19: 24 for each of 2,048 threads of 132 multiprocessors.
    const STATE: usize = 24;
    log::once("unknown_size", "cudnnDropoutGetStatesSize");
    let threads = multiprocessors() * architecture().threads_per_multiprocessor;
    status(bytes.set(threads as usize * STATE))
}
