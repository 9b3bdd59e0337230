//! Batched matrix products.
//!
//! The work is cut into tiles of the output whose borders depend only on the sizes; each tile is one task. The `gemm` crate computes a tile
//! on one thread. Products with a short side have loops of our own. These figures are the reason, from two cores of an EPYC 7003 (AVX2),
//! f32, GFLOP/s:
//!
//! | product | gemm, 1 thread | its own threads (2) | tiles (2) | other |
//! |---|---|---|---|---|
//! | 256³ | 97 | 92 | 182 | |
//! | 1024³ | 91 | 88 to 170 | 176 | |
//! | 2048³ | 79 | 73 to 150 | 174 | |
//! | \[128×784\]·\[784×1024\]ᵀ | 86 | 134 | 172 | |
//! | 32 × \[128×64\]·\[64×128\]ᵀ | 83 | 83 | 130 | |
//! | \[8×1024\]·\[1024×1024\]ᵀ | | | 32 | 130 (`dots`) |
//! | \[32×4096\]·\[4096×10\]ᵀ | 39 | 32 | 75 | 85 (`dots`) |
//! | \[4×57600\]·\[57600×128\]ᵀ | 17 | 17 | 28 to 50 | 48 (`dots`) |
//! | \[4×128\]·\[128×57600\] | 11 | 16 | 30 | 75 (`combine_rows`) |
//! | \[128×4\]·\[4×57600\] | 17 | 24 | 36 | 90 (`combine_rows`) |
//!
//! `private-gemm-x86` was within 10% of `gemm` (97, 82, 78 GFLOP/s on one thread for the first, second and fifth row), and is for x86 only;
//! `matrixmultiply` reached 70 to 90% of it. The library's own threading leaves small and batched products on one thread, and allocates
//! panels of the whole operand. Over tiles of at most 512² its panels stay below a megabyte. They are the only heap that a product uses,
//! besides one buffer of the size of the L2 cache per thread that the library keeps.
//!
//! 16-bit floats go through `packed.rs`. bf16 uses the processor's own products of pairs if it has them. Otherwise 16-bit floats are widened to f32
//! when they are packed.

mod job;
mod packed;
mod skinny;
mod tiles;

use std::ops::Range;

use memcore::backend::kernel::Matmul;
use memcore::error::Result;

use crate::element::Real;
use crate::panels::{Pair, has_bf16_products};
use crate::product::{Mat, MatMut, product};
use crate::refusal::unsupported;
use crate::view::Context;
use job::{Job, job};
use skinny::{Dots, combine_rows, dots, has_dots};
use tiles::{INLINE_MACS, even, for_each_tile};

/// Longest side of an output tile.
const TILE: usize = 512;

/// Most rows of a short side for which inner products beat GEMM's packing.
const SHORT_DOTS: usize = 32;

/// Most rows or terms of a short side for which sums of rows beat GEMM's packing.
const SHORT_ROWS: usize = 8;

/// Runs a [`Matmul`].
pub(crate) fn matmul(ctx: &Context<'_>, call: &Matmul) -> Result<()> {
    if call.out.numel() == 0 {
        return Ok(());
    }
    match call.out.dtype {
        memcore::DType::F32 => {
            run(ctx, &job::<f32, f32>(ctx, call)?);
            Ok(())
        }
        memcore::DType::F64 => {
            run(ctx, &job::<f64, f64>(ctx, call)?);
            Ok(())
        }
        memcore::DType::F16 => {
            packed::run::<f32, _>(ctx, &job::<half::f16, f32>(ctx, call)?);
            Ok(())
        }
        memcore::DType::BF16 => {
            let job = job::<half::bf16, f32>(ctx, call)?;
            if has_bf16_products() {
                packed::run::<Pair, _>(ctx, &job);
            } else {
                packed::run::<f32, _>(ctx, &job);
            }
            Ok(())
        }
        _ => unsupported(&call.clone().into()),
    }
}

/// Algorithm for a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Inner products of rows: both operands have contiguous rows along k, and one has few rows.
    Dots,
    /// Sums of scaled rows of `b`: `out` or `b` has few rows.
    Rows,
    /// The GEMM library.
    Gemm,
}

fn way<T>(job: &Job<T, T>) -> Way {
    let [m, n, k] = job.sizes;
    if m * n * k < 4096 {
        // The library has little setup.
        Way::Gemm
    } else if has_dots() && job.a.0.col == 1 && job.b.0.row == 1 && m.min(n) <= SHORT_DOTS && k >= 64 {
        Way::Dots
    } else if job.b.0.col == 1 && m.min(k) <= SHORT_ROWS && n >= 64 {
        Way::Rows
    } else {
        Way::Gemm
    }
}

/// Returns the rows and columns of an output tile.
fn tile_sizes(way: Way, batch: usize, [m, n, k]: [usize; 3]) -> [usize; 2] {
    // Largest tile; fewest multiply-adds in one; unit of its sides; best proportion of its sides. The library is 2 to 5% faster on tall tiles than on
    // square or wide ones.
    let (mut tile, least, unit, best) = match way {
        Way::Dots => ([m.min(TILE), n.min(TILE)], 32 << 10, [8, 8], [1, 1]),
        Way::Rows => ([m.min(TILE), n.min(8 * TILE)], 128 << 10, [8, 256], [1, 32]),
        Way::Gemm => ([m.min(TILE), n.min(TILE)], 4 << 20, [8, 16], [4, 1]),
    };
    let count = |t: [usize; 2]| batch * m.div_ceil(t[0]) * n.div_ceil(t[1]);
    // Enough tiles for many threads if each is worth it, and for a few in any case.
    let wanted = |t: [usize; 2]| match t[0] * t[1] * k {
        macs if macs > 2 * least => 32,
        macs if macs >= 2 * INLINE_MACS.max(least / 16) => 4,
        _ => 0,
    };
    while count(tile) < wanted(tile) {
        let side = if tile[1] * best[0] >= tile[0] * best[1] { 1 } else { 0 };
        let half = tile[side].div_ceil(2).next_multiple_of(unit[side]);
        if half >= tile[side] {
            break;
        }
        tile[side] = half;
    }
    // Pieces of sizes as equal as possible.
    [even(m, tile[0], unit[0]), even(n, tile[1], unit[1])]
}

fn run<T: Dots>(ctx: &Context<'_>, job: &Job<T, T>) {
    let way = way(job);
    let tile = tile_sizes(way, job.batch, job.sizes);
    for_each_tile(ctx, job.batch, job.sizes, tile, |batch, rows, cols| {
        // SAFETY: the tile lies in the output and is this task's alone; the call was validated.
        unsafe { one_tile(job, way, batch, rows, cols) }
    });
}

/// # Safety
/// The tile lies in the output, and no one else touches it.
unsafe fn one_tile<T: Dots>(job: &Job<T, T>, way: Way, batch: usize, rows: Range<usize>, cols: Range<usize>) {
    let sizes = [rows.len(), cols.len(), job.sizes[2]];
    let a = job.a.0.skip(batch * job.a.1).at(rows.start, 0);
    let b = job.b.0.skip(batch * job.b.1).at(0, cols.start);
    let out = job.out.0.skip(batch * job.out.1).at(rows.start, cols.start);
    // The library scales `out` itself. All other algorithms start from the value to which the product is added.
    let (zero, one) = (T::default(), T::from_f64(1.0));
    let mut keep = job.beta;
    if let Some(bias) = job.bias {
        // SAFETY: the bias has a value for each column.
        unsafe { start(sizes, Some(bias.at(0, cols.start)), job.beta, out) };
        keep = one;
    } else if sizes[2] == 0 || way != Way::Gemm && keep != zero && keep != one {
        // SAFETY: as the caller asserts.
        unsafe { start(sizes, None, job.beta, out) };
        keep = one;
    }
    // SAFETY: as the caller asserts; `way` saw that the strides fit, and that there is a kernel.
    unsafe {
        match way {
            Way::Gemm => product(sizes, job.alpha, a, b, keep, out),
            Way::Dots => dots(sizes, job.alpha, a, b.transposed(), keep != zero, out),
            Way::Rows => combine_rows(sizes, job.alpha, a, b, keep != zero, out),
        }
    }
}

/// Sets a tile to `beta·out + bias`. Its contents are not read if `beta` is 0.
///
/// # Safety
/// The tile lies in the output, has contiguous rows, and no one else touches it; `bias` has a contiguous value for each column.
unsafe fn start<T: Real>([m, n, _]: [usize; 3], bias: Option<Mat<T>>, beta: T, out: MatMut<T>) {
    let zero = T::default();
    // SAFETY: as the caller asserts.
    let bias = bias.map(|bias| unsafe { std::slice::from_raw_parts(bias.ptr(), n) });
    for i in 0..m {
        let to = out.at(i, 0).ptr();
        if beta == zero {
            // SAFETY: row i, whose elements are written without being read; zero is the bits 0.
            match bias {
                // SAFETY: see above; the bias is another operand.
                Some(bias) => unsafe { std::ptr::copy_nonoverlapping(bias.as_ptr(), to, n) },
                // SAFETY: see above.
                None => unsafe { std::ptr::write_bytes(to, 0, n) },
            }
            continue;
        }
        // SAFETY: row i is the caller's, and holds values.
        let row = unsafe { std::slice::from_raw_parts_mut(to, n) };
        row.iter_mut().for_each(|x| *x = beta * *x);
        row.iter_mut().zip(bias.unwrap_or(&[])).for_each(|(x, bias)| *x = *x + *bias);
    }
}
