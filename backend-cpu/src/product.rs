//! Matrices in memory, and the GEMM library's product of two of them.

use gemm_common::Parallelism;

/// A matrix in memory: address of the first element, and the steps to the next row and column, in elements.
pub(crate) struct Mat<T> {
    ptr: *const T,
    pub(crate) row: usize,
    pub(crate) col: usize,
}

/// Matrix in memory as [`Mat`], for writing.
pub(crate) struct MatMut<T> {
    ptr: *mut T,
    pub(crate) row: usize,
    pub(crate) col: usize,
}

macro_rules! matrix {
    ($Mat:ident, $($ptr:tt)+) => {
        impl<T> Clone for $Mat<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $Mat<T> {}
        // SAFETY: only an address; each use is unsafe and says why its part may be used.
        unsafe impl<T: Send> Send for $Mat<T> {}
        // SAFETY: as above.
        unsafe impl<T: Sync> Sync for $Mat<T> {}

        impl<T> $Mat<T> {
            /// Makes a matrix with these steps.
            pub(crate) fn new(ptr: $($ptr)+ T, row: usize, col: usize) -> Self {
                Self { ptr, row, col }
            }
            /// Returns the address of the first element.
            pub(crate) fn ptr(self) -> $($ptr)+ T {
                self.ptr
            }
            /// Returns the matrix that starts at row `i`, column `j` of this one. Only its use is unsafe if it is out of bounds.
            pub(crate) fn at(self, i: usize, j: usize) -> Self {
                Self { ptr: self.ptr.wrapping_add(i * self.row + j * self.col), ..self }
            }
            /// Returns the matrix that starts `elements` later.
            pub(crate) fn skip(self, elements: usize) -> Self {
                Self { ptr: self.ptr.wrapping_add(elements), ..self }
            }
            /// Exchanges rows and columns.
            pub(crate) fn transposed(self) -> Self {
                Self { row: self.col, col: self.row, ..self }
            }
        }
    };
}
matrix!(Mat, *const);
matrix!(MatMut, *mut);

/// The library's product of matrices of `T`: `m`, `n`, `k`; destination with its steps to the next column and row, and whether it is read; the two factors with
/// theirs; the factors of the destination and of the product; whether each is conjugated; threads.
pub(crate) type Gemm<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// A type of which the library multiplies matrices.
pub(crate) trait Multiplied: Copy + Default + PartialEq {
    /// The product for this processor.
    fn gemm() -> Gemm<Self>;
}

impl Multiplied for f32 {
    fn gemm() -> Gemm<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Multiplied for f64 {
    fn gemm() -> Gemm<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

/// Computes `out = alpha·(a @ b) + keep·out` on this thread, for `a` `[m, k]`, `b` `[k, n]`, `out` `[m, n]`. `out` is not read if `keep` is
/// 0.
///
/// # Safety
/// All elements named by the sizes and steps are in bounds, those of `out` are this thread's alone.
pub(crate) unsafe fn product<T: Multiplied>(
    [m, n, k]: [usize; 3],
    alpha: T,
    a: Mat<T>,
    b: Mat<T>,
    keep: T,
    out: MatMut<T>,
) {
    // The library's kernels write along columns.
    let ([m, n], a, b, out) = match out.col < out.row {
        true => ([n, m], b.transposed(), a.transposed(), out.transposed()),
        false => ([m, n], a, b, out),
    };
    // SAFETY: as the caller asserts. No stride exceeds isize::MAX elements: the operands lie in memory.
    unsafe {
        T::gemm()(
            m,
            n,
            k,
            out.ptr,
            out.col as isize,
            out.row as isize,
            keep != T::default(),
            a.ptr,
            a.col as isize,
            a.row as isize,
            b.ptr,
            b.col as isize,
            b.row as isize,
            keep,
            alpha,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
