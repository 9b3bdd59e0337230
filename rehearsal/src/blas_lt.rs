//! cuBLASLt: every product has one and the same algorithm.

use std::ffi::{c_char, c_int};

use crate::argument::{In, Out};
use crate::{blas, planning};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 7;

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    algorithm: [u64; 8],
    workspace: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// The algorithm needs no workspace. PyTorch allocates the maximum that it allows, before it requests algorithms.
const FOUND: Found =
    Found { algorithm: [1, 0, 0, 0, 0, 0, 0, 0], workspace: 0, status: 0, waves: 1.0, reserved: [0; 4] };

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: usize,
    _operation: usize,
    _a: usize,
    _b: usize,
    _c: usize,
    _d: usize,
    _preference: usize,
    requested: c_int,
    found: Out<Found>,
    count: Out<c_int>,
) -> c_int {
    planning::ask_products();
    if requested < 1 {
        return INVALID_VALUE;
    }
    found.set(FOUND).and_then(|()| count.set(1)).map_or(INVALID_VALUE, |()| SUCCESS)
}

/// A preference has one attribute that matters here: how many bytes of workspace an algorithm may take.
#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    _preference: usize,
    attribute: c_int,
    value: In<u64>,
    bytes: usize,
) -> c_int {
    const MAX_WORKSPACE_BYTES: c_int = 1;
    if attribute == MAX_WORKSPACE_BYTES && bytes == size_of::<u64>() {
        planning::limit_products(value.get().unwrap_or(0));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoCheck(
    _handle: usize,
    _operation: usize,
    _a: usize,
    _b: usize,
    _c: usize,
    _d: usize,
    _algorithm: usize,
    found: Out<Found>,
) -> c_int {
    found.set(FOUND).map_or(INVALID_VALUE, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoGetIds(
    _handle: usize,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    requested: c_int,
    ids: Out<c_int>,
    count: Out<c_int>,
) -> c_int {
    if requested < 1 {
        return INVALID_VALUE;
    }
    ids.set(1).and_then(|()| count.set(1)).map_or(INVALID_VALUE, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusName(status: c_int) -> *const c_char {
    blas::name(status)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(status: c_int) -> *const c_char {
    blas::name(status)
}
