//! Products with a short side, where packing panels for a GEMM costs more than the product: inner products of long rows
//! ([`dots`]) and sums of a few scaled rows ([`combine_rows`]).

use crate::element::Real;
use crate::product::{Mat, MatMut};
use crate::simd::{Isa, simd};

/// Elements of a row that [`dots`] processes before it goes to the next row, so that the short side stays in the cache.
const DOT_BLOCK: usize = 4096;

/// Elements that one step of [`combine_rows`] handles.
const STEP: usize = 8;

/// True if [`dots`] has a kernel for this processor.
pub(crate) fn has_dots() -> bool {
    #[cfg(target_arch = "x86_64")]
    return crate::simd::level() != crate::simd::Level::Baseline;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Real types with inner-product kernels.
pub(crate) trait Dots: Real {
    /// Returns `out[i][j] = Σ_p a[i][p]·b[j][p]` for 4 × 2 rows of length `k`, `lda` and `ldb` elements apart.
    ///
    /// # Safety
    /// In bounds, and [`has_dots`].
    unsafe fn dots_4x2(a: *const Self, lda: usize, b: *const Self, ldb: usize, k: usize) -> [[Self; 2]; 4];
    /// Returns the inner product of two rows of length `k`.
    ///
    /// # Safety
    /// In bounds, and [`has_dots`].
    unsafe fn dot(a: *const Self, b: *const Self, k: usize) -> Self;
}

/// Uses intrinsics, because the compiler vectorises these loops badly when they are written plainly (a fifth of the speed).
macro_rules! dots {
    ($T:ident, $lanes:literal, $zero:ident, $load:ident, $fma:ident, $store:ident) => {
        #[cfg(target_arch = "x86_64")]
        impl Dots for $T {
            #[target_feature(enable = "avx2,fma")]
            unsafe fn dots_4x2(a: *const $T, lda: usize, b: *const $T, ldb: usize, k: usize) -> [[$T; 2]; 4] {
                use std::arch::x86_64::*;
                let mut sums = [[$zero(); 2]; 4];
                let whole = k - k % $lanes;
                for p in (0..whole).step_by($lanes) {
                    // SAFETY: p + lanes ≤ k, and the rows are k long.
                    unsafe {
                        let y = [$load(b.add(p)), $load(b.add(ldb + p))];
                        for (i, row) in sums.iter_mut().enumerate() {
                            let x = $load(a.add(i * lda + p));
                            row[0] = $fma(x, y[0], row[0]);
                            row[1] = $fma(x, y[1], row[1]);
                        }
                    }
                }
                let mut out = [[0.0; 2]; 4];
                for i in 0..4 {
                    for j in 0..2 {
                        let mut lanes = [0.0; $lanes];
                        // SAFETY: as many elements as the vector has; and the rows are k long.
                        unsafe {
                            $store(lanes.as_mut_ptr(), sums[i][j]);
                            let tail = (whole..k).map(|p| *a.add(i * lda + p) * *b.add(j * ldb + p));
                            out[i][j] = lanes.iter().copied().chain(tail).sum();
                        }
                    }
                }
                out
            }

            #[target_feature(enable = "avx2,fma")]
            unsafe fn dot(a: *const $T, b: *const $T, k: usize) -> $T {
                use std::arch::x86_64::*;
                let mut sums = [$zero(); 4];
                let whole = k - k % (4 * $lanes);
                for p in (0..whole).step_by(4 * $lanes) {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: p + 4·lanes ≤ k, and the rows are k long.
                        *sum = unsafe { $fma($load(a.add(p + i * $lanes)), $load(b.add(p + i * $lanes)), *sum) };
                    }
                }
                let mut lanes = [[0.0; $lanes]; 4];
                for (i, sum) in sums.iter().enumerate() {
                    // SAFETY: as many elements as the vector has.
                    unsafe { $store(lanes[i].as_mut_ptr(), *sum) };
                }
                // SAFETY: the rows are k long.
                let tail = (whole..k).map(|p| unsafe { *a.add(p) * *b.add(p) });
                lanes.iter().flatten().copied().chain(tail).sum()
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        impl Dots for $T {
            unsafe fn dots_4x2(_: *const $T, _: usize, _: *const $T, _: usize, _: usize) -> [[$T; 2]; 4] {
                unreachable!("has_dots() is false")
            }
            unsafe fn dot(_: *const $T, _: *const $T, _: usize) -> $T {
                unreachable!("has_dots() is false")
            }
        }
    };
}
dots!(f32, 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_fmadd_ps, _mm256_storeu_ps);
dots!(f64, 4, _mm256_setzero_pd, _mm256_loadu_pd, _mm256_fmadd_pd, _mm256_storeu_pd);

/// Computes `out (+)= alpha·(a @ bᵀ)` with `a` `[m, k]` and `b` `[n, k]`, both with contiguous rows.
///
/// # Safety
/// As for [`product`](crate::product::product), and [`has_dots`].
pub(crate) unsafe fn dots<T: Dots>([m, n, k]: [usize; 3], alpha: T, a: Mat<T>, b: Mat<T>, add: bool, out: MatMut<T>) {
    let store = |i: usize, j: usize, add: bool, sum: T| {
        let to = out.at(i, j).ptr();
        // SAFETY: i < m, j < n; this thread's alone.
        unsafe { *to = if add { *to + alpha * sum } else { alpha * sum } };
    };
    for p in (0..k).step_by(DOT_BLOCK) {
        let (len, add) = (DOT_BLOCK.min(k - p), add || p > 0);
        let (m4, n2) = (m - m % 4, n - n % 2);
        for j in (0..n2).step_by(2) {
            for i in (0..m4).step_by(4) {
                // SAFETY: rows i..i + 4 and j..j + 2 exist, p + len ≤ k; the caller asserts the rest.
                let sums = unsafe { T::dots_4x2(a.at(i, p).ptr(), a.row, b.at(j, p).ptr(), b.row, len) };
                for (r, row) in sums.iter().enumerate() {
                    store(i + r, j, add, row[0]);
                    store(i + r, j + 1, add, row[1]);
                }
            }
        }
        let single = |i: usize, j: usize| {
            // SAFETY: row i of a and row j of b exist, p + len ≤ k.
            store(i, j, add, unsafe { T::dot(a.at(i, p).ptr(), b.at(j, p).ptr(), len) });
        };
        for j in 0..n {
            let first = if j < n2 { m4 } else { 0 };
            (first..m).for_each(|i| single(i, j));
        }
    }
}

/// Operands of [`combine_rows`] for one call of the compiled loop.
struct Combine<T> {
    sizes: [usize; 3],
    alpha: T,
    a: Mat<T>,
    b: Mat<T>,
    out: MatMut<T>,
    add: bool,
}

/// Computes `out (+)= alpha·(a @ b)` for few rows in `out`, or few in `b`. The rows of `b` and of `out` must be contiguous. Each row of `out` is a
/// sum of scaled rows of `b`, which are taken four at a time.
///
/// # Safety
/// As for [`product`](crate::product::product).
pub(crate) unsafe fn combine_rows<T: Real>(
    sizes: [usize; 3],
    alpha: T,
    a: Mat<T>,
    b: Mat<T>,
    add: bool,
    out: MatMut<T>,
) {
    combine(&Combine { sizes, alpha, a, b, out, add });
}

simd! {
    fn combine<T: Real>(c: &Combine<T>) = combine_body;
}

#[inline(always)]
fn combine_body<S: Isa, T: Real>(c: &Combine<T>) {
    let [m, _, k] = c.sizes;
    let mut p = 0;
    while p < k {
        let (terms, mut i) = (if k - p >= 4 { 4 } else { 1 }, 0);
        while i < m {
            // SAFETY (all four): rows i.. and terms p.. exist; the caller of `combine_rows` asserts the rest.
            i += match (terms, m - i >= 4) {
                // SAFETY: see above.
                (4, true) => unsafe { tile::<S, T, 4, 4>(c, i, p) },
                // SAFETY: see above.
                (4, false) => unsafe { tile::<S, T, 1, 4>(c, i, p) },
                // SAFETY: see above.
                (_, true) => unsafe { tile::<S, T, 4, 1>(c, i, p) },
                // SAFETY: see above.
                (_, false) => unsafe { tile::<S, T, 1, 1>(c, i, p) },
            };
        }
        p += terms;
    }
}

/// Adds terms `p..p + K` to rows `i..i + R`. Returns R.
#[inline(always)]
unsafe fn tile<S: Isa, T: Real, const R: usize, const K: usize>(c: &Combine<T>, i: usize, p: usize) -> usize {
    let (n, add) = (c.sizes[1], c.add || p > 0);
    let mut factor = [[T::default(); K]; R];
    for (r, row) in factor.iter_mut().enumerate() {
        for (q, f) in row.iter_mut().enumerate() {
            // SAFETY: i + R ≤ m, p + K ≤ k.
            *f = unsafe { *c.a.at(i + r, p + q).ptr() } * c.alpha;
        }
    }
    let (b, out) = (c.b.at(p, 0).ptr(), c.out.at(i, 0).ptr());
    let whole = n - n % STEP;
    for j in (0..whole).step_by(STEP) {
        // SAFETY: j + STEP ≤ n, the rows are contiguous.
        let terms: [[T; STEP]; K] =
            std::array::from_fn(|q| unsafe { b.add(q * c.b.row + j).cast::<[T; STEP]>().read() });
        for (r, f) in factor.iter().enumerate() {
            // SAFETY: as above; this thread's alone.
            let to = unsafe { &mut *out.add(r * c.out.row + j).cast::<[T; STEP]>() };
            let mut sum = if add { *to } else { [T::default(); STEP] };
            for q in 0..K {
                for l in 0..STEP {
                    sum[l] = terms[q][l].fma::<S>(f[q], sum[l]);
                }
            }
            *to = sum;
        }
    }
    for j in whole..n {
        for (r, f) in factor.iter().enumerate() {
            // SAFETY: j < n.
            unsafe {
                let to = out.add(r * c.out.row + j);
                let mut sum = if add { *to } else { T::default() };
                for (q, f) in f.iter().enumerate() {
                    sum = (*b.add(q * c.b.row + j)).fma::<S>(*f, sum);
                }
                *to = sum;
            }
        }
    }
    R
}
