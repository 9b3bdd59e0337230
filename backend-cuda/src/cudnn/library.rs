//! The functions of cuDNN 9, and the choice of the library file.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::libraries::{self, Version, functions};

/// Status code of the library: 0 is success, and thousands tell the kind of a failure.
pub(super) type Status = u32;

/// `CUDNN_STATUS_EXECUTION_FAILED`; codes from here on are of its kind, while those below come before anything ran.
pub(super) const EXECUTION_FAILED: Status = 5000;

/// A description of the library's.
pub(super) type Description = *mut c_void;

/// An open library: a `cudnnHandle_t`.
#[derive(Clone, Copy)]
pub(super) struct Handle(pub(super) *mut c_void);

// SAFETY: any thread may use it that has the context; uses are behind a lock.
unsafe impl Send for Handle {}

/// `cudnnConvolutionFwdAlgoPerf_t` and its twins for the gradients: an algorithm for a convolution.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choice {
    pub(super) algorithm: c_int,
    pub(super) status: c_int,
    time: f32,
    pub(super) workspace_bytes: usize,
    /// 1 if every run gives the same bits.
    pub(super) deterministic: c_int,
    /// `cudnnMathType_t`
    pub(super) math: c_int,
    reserved: [c_int; 3],
}

functions! {
    /// Functions that are called.
    Functions {
        cudnnGetVersion() -> usize;
        cudnnGetCudartVersion() -> usize;
        cudnnCreate(handle: *mut *mut c_void) -> Status;
        cudnnDestroy(handle: *mut c_void) -> Status;
        cudnnSetStream(handle: *mut c_void, stream: *mut c_void) -> Status;
        cudnnCreateTensorDescriptor(tensor: *mut Description) -> Status;
        cudnnDestroyTensorDescriptor(tensor: Description) -> Status;
        cudnnSetTensor4dDescriptor(tensor: Description, format: c_int, kind: c_int, n: c_int, c: c_int, h: c_int,
            w: c_int) -> Status;
        cudnnCreateFilterDescriptor(filter: *mut Description) -> Status;
        cudnnDestroyFilterDescriptor(filter: Description) -> Status;
        cudnnSetFilter4dDescriptor(filter: Description, kind: c_int, format: c_int, k: c_int, c: c_int, h: c_int,
            w: c_int) -> Status;
        cudnnCreateConvolutionDescriptor(rules: *mut Description) -> Status;
        cudnnDestroyConvolutionDescriptor(rules: Description) -> Status;
        cudnnSetConvolution2dDescriptor(rules: Description, pad_h: c_int, pad_w: c_int, stride_h: c_int, stride_w: c_int,
            dilation_h: c_int, dilation_w: c_int, mode: c_int, sums: c_int) -> Status;
        cudnnSetConvolutionGroupCount(rules: Description, groups: c_int) -> Status;
        cudnnSetConvolutionMathType(rules: Description, math: c_int) -> Status;
        cudnnGetConvolutionForwardAlgorithm_v7(handle: *mut c_void, x: Description, w: Description, rules: Description,
            y: Description, wanted: c_int, found: *mut c_int, choices: *mut Choice) -> Status;
        cudnnGetConvolutionBackwardDataAlgorithm_v7(handle: *mut c_void, w: Description, dy: Description,
            rules: Description, dx: Description, wanted: c_int, found: *mut c_int, choices: *mut Choice) -> Status;
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle: *mut c_void, x: Description, dy: Description,
            rules: Description, dw: Description, wanted: c_int, found: *mut c_int, choices: *mut Choice) -> Status;
        cudnnConvolutionForward(handle: *mut c_void, alpha: *const c_void, x_is: Description, x: *const c_void,
            w_is: Description, w: *const c_void, rules: Description, algorithm: c_int, workspace: *mut c_void,
            workspace_bytes: usize, beta: *const c_void, y_is: Description, y: *mut c_void) -> Status;
        cudnnConvolutionBackwardData(handle: *mut c_void, alpha: *const c_void, w_is: Description, w: *const c_void,
            dy_is: Description, dy: *const c_void, rules: Description, algorithm: c_int, workspace: *mut c_void,
            workspace_bytes: usize, beta: *const c_void, dx_is: Description, dx: *mut c_void) -> Status;
        cudnnBackendCreateDescriptor(kind: c_int, description: *mut Description) -> Status;
        cudnnBackendDestroyDescriptor(description: Description) -> Status;
        cudnnBackendSetAttribute(description: Description, name: c_int, kind: c_int, count: i64, values: *const c_void) -> Status;
        cudnnBackendGetAttribute(description: Description, name: c_int, kind: c_int, wanted: i64, count: *mut i64,
            values: *mut c_void) -> Status;
        cudnnBackendFinalize(description: Description) -> Status;
        cudnnBackendExecute(handle: *mut c_void, plan: Description, pack: Description) -> Status;
        cudnnConvolutionBackwardFilter(handle: *mut c_void, alpha: *const c_void, x_is: Description, x: *const c_void,
            dy_is: Description, dy: *const c_void, rules: Description, algorithm: c_int, workspace: *mut c_void,
            workspace_bytes: usize, beta: *const c_void, dw_is: Description, dw: *mut c_void) -> Status;
    }
}

/// The library, if a driver of CUDA `newest` can run it, or the reason why there is none. The first search of a process
/// determines the answer.
pub(super) fn library(newest: u32) -> Result<&'static Functions, &'static str> {
    static FOUND: OnceLock<Result<Functions, String>> = OnceLock::new();
    let open = |library| {
        let library = Functions::from_library(library)?;
        // SAFETY: it only answers: 1000·major + 10·minor.
        let cuda = unsafe { (library.cudnnGetCudartVersion)() } as u32;
        Ok((library, (cuda / 1000, cuda % 1000 / 10)))
    };
    let find = || libraries::find("cudnn", newest, open).map(|(library, _)| library);
    FOUND.get_or_init(find).as_ref().map_err(String::as_str)
}

impl Functions {
    /// Major and minor version.
    pub(super) fn version(&self) -> Version {
        // SAFETY: it only answers: 10000·major + 100·minor + patch.
        let version = unsafe { (self.cudnnGetVersion)() } as u32;
        (version / 10_000, version / 100 % 100)
    }

    /// Starts the library in the current context, on this stream.
    pub(super) fn open(&self, stream: *mut c_void) -> Result<Handle, Status> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place to write the handle to; the context is current.
        succeeded(unsafe { (self.cudnnCreate)(&mut handle) })?;
        // SAFETY: the handle is live, and the stream lives longer.
        succeeded(unsafe { (self.cudnnSetStream)(handle, stream) }).map(|()| Handle(handle)).inspect_err(|_| {
            // SAFETY: as above; nobody has it after this.
            let _ = unsafe { (self.cudnnDestroy)(handle) };
        })
    }
}

/// The status as a result.
pub(super) fn succeeded(status: Status) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(status) }
}
