//! The functions of cuBLASLt, and the choice of the library file.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use cudarc::cublaslt::sys;

use crate::libraries::{self, Version, functions};

/// Status code of the library: 0 is success.
pub(super) type Status = u32;

/// `CUBLAS_STATUS_NOT_SUPPORTED`.
pub(super) const NOT_SUPPORTED: Status = 15;

functions! {
    /// Functions that are called.
    Functions {
        cublasLtGetVersion() -> usize;
        cublasLtCreate(handle: *mut sys::cublasLtHandle_t) -> Status;
        cublasLtDestroy(handle: sys::cublasLtHandle_t) -> Status;
        cublasLtMatmul(handle: sys::cublasLtHandle_t, product: sys::cublasLtMatmulDesc_t, alpha: *const c_void,
            a: *const c_void, a_layout: sys::cublasLtMatrixLayout_t, b: *const c_void,
            b_layout: sys::cublasLtMatrixLayout_t, beta: *const c_void, c: *const c_void,
            c_layout: sys::cublasLtMatrixLayout_t, d: *mut c_void, d_layout: sys::cublasLtMatrixLayout_t,
            algorithm: *const sys::cublasLtMatmulAlgo_t, workspace: *mut c_void, workspace_bytes: usize,
            stream: *mut c_void) -> Status;
        cublasLtMatmulAlgoGetHeuristic(handle: sys::cublasLtHandle_t, product: sys::cublasLtMatmulDesc_t,
            a: sys::cublasLtMatrixLayout_t, b: sys::cublasLtMatrixLayout_t, c: sys::cublasLtMatrixLayout_t,
            d: sys::cublasLtMatrixLayout_t, preference: sys::cublasLtMatmulPreference_t, wanted: c_int,
            choices: *mut sys::cublasLtMatmulHeuristicResult_t, found: *mut c_int) -> Status;
        cublasLtMatmulDescCreate(product: *mut sys::cublasLtMatmulDesc_t, compute: sys::cublasComputeType_t,
            scale: sys::cudaDataType_t) -> Status;
        cublasLtMatmulDescDestroy(product: sys::cublasLtMatmulDesc_t) -> Status;
        cublasLtMatmulDescSetAttribute(product: sys::cublasLtMatmulDesc_t, name: sys::cublasLtMatmulDescAttributes_t,
            value: *const c_void, bytes: usize) -> Status;
        cublasLtMatmulPreferenceCreate(preference: *mut sys::cublasLtMatmulPreference_t) -> Status;
        cublasLtMatmulPreferenceDestroy(preference: sys::cublasLtMatmulPreference_t) -> Status;
        cublasLtMatmulPreferenceSetAttribute(preference: sys::cublasLtMatmulPreference_t,
            name: sys::cublasLtMatmulPreferenceAttributes_t, value: *const c_void, bytes: usize) -> Status;
        cublasLtMatrixLayoutCreate(layout: *mut sys::cublasLtMatrixLayout_t, kind: sys::cudaDataType_t, rows: u64,
            columns: u64, lead: i64) -> Status;
        cublasLtMatrixLayoutDestroy(layout: sys::cublasLtMatrixLayout_t) -> Status;
        cublasLtMatrixLayoutSetAttribute(layout: sys::cublasLtMatrixLayout_t,
            name: sys::cublasLtMatrixLayoutAttribute_t, value: *const c_void, bytes: usize) -> Status;
    }
}

/// The newest library that a driver of CUDA `newest` can run, or the reason why there is none. The first search of a
/// process determines the answer.
pub(super) fn library(newest: u32) -> Result<&'static Functions, &'static str> {
    static FOUND: OnceLock<Result<Functions, String>> = OnceLock::new();
    let open = |library| {
        let library = Functions::from_library(library)?;
        let version = library.version();
        Ok((library, version))
    };
    let find = || libraries::find("cublasLt", newest, open).map(|(library, _)| library);
    FOUND.get_or_init(find).as_ref().map_err(String::as_str)
}

impl Functions {
    /// The version as one number: 10000·major + 100·minor + patch.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: it only answers.
        unsafe { (self.cublasLtGetVersion)() as u32 }
    }

    /// Major and minor version.
    pub(super) fn version(&self) -> Version {
        let version = self.number();
        (version / 10_000, version / 100 % 100)
    }
}
