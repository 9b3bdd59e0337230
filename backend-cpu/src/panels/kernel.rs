//! Loop over the terms, which keeps a tile of sums in registers.
//!
//! With AVX-512, registers hold a tile of 12 × 32: 24 of the 32 registers hold sums, and two hold the panel's words of one term. Each row's word
//! comes by a broadcast from memory that is part of the multiplication. With AVX2, registers hold 12 × 8 sums, and four of these make the tile.

use super::lanes::{Lanes, Numbers, PlainPair};
use super::{Job, Left, Pair, ROW, ROWS, Sums, WIDTH, Word};
use crate::element::Real;
use crate::simd::{Level, level};
use crate::vector::Plain4;

/// True if this processor has an instruction for products of bf16 pairs. Without one, bf16 is widened to f32 when it is packed.
pub(crate) fn has_bf16_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Addresses of the operands of one tile, and the steps between their words.
#[derive(Clone, Copy)]
struct Steps<W> {
    left: *const W,
    row: usize,
    step: usize,
    right: *const W,
    width: usize,
    depth: usize,
}

/// Computes `to[i·to_row + j] = Σ_p left[i][p]·right[p][j]` for `R` rows and `V` vectors of columns. If `add`, adds the sums to those in `to`.
///
/// # Safety
/// The words and the sums exist.
#[inline(always)]
// Plain loops, because some iterators with closures are not inlined, and are then compiled without the vector instructions.
#[allow(clippy::needless_range_loop)]
unsafe fn sums<L: Lanes, const R: usize, const V: usize>(
    at: Steps<L::Word>,
    to: *mut L::Sum,
    to_row: usize,
    add: bool,
) {
    let mut sums = [[L::zero(); V]; R];
    if add {
        for r in 0..R {
            for v in 0..V {
                // SAFETY: the caller asserts that the sums exist.
                sums[r][v] = unsafe { L::load_sums(to.add(r * to_row + v * L::N)) };
            }
        }
    }
    let (mut left, mut right) = (at.left, at.right);
    for _ in 0..at.depth {
        // SAFETY: term p of the panel and of the rows.
        unsafe {
            let mut columns = [L::load(right); V];
            for v in 1..V {
                columns[v] = L::load(right.add(v * L::N));
            }
            for r in 0..R {
                let word = L::splat(*left.add(r * at.row));
                for v in 0..V {
                    sums[r][v] = word.multiply_add(columns[v], sums[r][v]);
                }
            }
        }
        left = left.wrapping_add(at.step);
        right = right.wrapping_add(at.width);
    }
    for r in 0..R {
        for v in 0..V {
            // SAFETY: the caller asserts that there is room.
            unsafe { L::store(sums[r][v], to.add(r * to_row + v * L::N)) };
        }
    }
}

/// Computes all columns of a tile, for the rows of `job`.
#[inline(always)]
unsafe fn tile<L: Lanes, const V: usize>(job: &Job<L::Word>, to: &mut Sums<L::Sum>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match job.left {
            Left::Rows(left) => columns::<L, V>(
                job,
                Steps { left, row: ROW, step: 1, right: job.right, width: WIDTH, depth: job.depth },
                to,
            ),
            Left::Turned(left, step) => {
                columns::<L, V>(job, Steps { left, row: 1, step, right: job.right, width: WIDTH, depth: job.depth }, to)
            }
        }
    }
}

#[inline(always)]
unsafe fn columns<L: Lanes, const V: usize>(job: &Job<L::Word>, mut at: Steps<L::Word>, to: &mut Sums<L::Sum>) {
    let mut column = 0;
    while column < job.columns {
        let to = to.0.as_mut_ptr().cast::<L::Sum>().wrapping_add(column);
        let few = job.columns - column <= L::N;
        // SAFETY: these columns exist in the panel and in the tile, which have `WIDTH` of them; the caller asserts the rest.
        unsafe {
            if few {
                rows::<L, 1>(job.rows, at, to);
            } else {
                rows::<L, V>(job.rows, at, to);
            }
        }
        at.right = at.right.wrapping_add(V * L::N);
        column += V * L::N;
    }
}

#[inline(always)]
unsafe fn rows<L: Lanes, const V: usize>(rows: usize, at: Steps<L::Word>, to: *mut L::Sum) {
    // SAFETY: passed on to the caller.
    unsafe {
        match rows {
            0..=1 => sums::<L, 1, V>(at, to, WIDTH, false),
            2..=4 => sums::<L, 4, V>(at, to, WIDTH, false),
            5..=8 => sums::<L, 8, V>(at, to, WIDTH, false),
            _ => sums::<L, ROWS, V>(at, to, WIDTH, false),
        }
    }
}

/// Product of operands where they lie, without blocks: `to (+)= left @ right`.
pub(crate) struct Strided<R> {
    /// Rows (a multiple of 4), columns (a multiple of 16) and terms.
    pub(crate) sizes: [usize; 3],
    /// The left operand, and its steps from row to row and from term to term.
    pub(crate) left: *const R,
    pub(crate) row: usize,
    pub(crate) step: usize,
    /// The right operand, and the step from term to term; its columns lie side by side.
    pub(crate) right: *const R,
    pub(crate) width: usize,
    pub(crate) to: *mut R,
    pub(crate) to_row: usize,
    pub(crate) add: bool,
}

/// Computes a product in tiles of `R` rows, at least 4, and `V` vectors of columns. Smaller tiles cover the rest.
#[inline(always)]
unsafe fn strided<L: Lanes<Sum = <L as Lanes>::Word>, const R: usize, const V: usize>(s: &Strided<L::Word>) {
    let [m, n, depth] = s.sizes;
    let mut column = 0;
    while column < n {
        let wide = n - column >= V * L::N;
        let mut row = 0;
        while row < m {
            let (left, right) = (s.left.wrapping_add(row * s.row), s.right.wrapping_add(column));
            let at = Steps { left, row: s.row, step: s.step, right, width: s.width, depth };
            let to = s.to.wrapping_add(row * s.to_row + column);
            // SAFETY: these rows and columns exist, as the caller asserts: 16 columns are whole vectors of every instruction set.
            unsafe {
                match (m - row >= R, wide) {
                    (true, true) => sums::<L, R, V>(at, to, s.to_row, s.add),
                    (true, false) => sums::<L, R, 1>(at, to, s.to_row, s.add),
                    (false, true) => sums::<L, 4, V>(at, to, s.to_row, s.add),
                    (false, false) => sums::<L, 4, 1>(at, to, s.to_row, s.add),
                }
            }
            row += if m - row >= R { R } else { 4 };
        }
        column += if wide { V * L::N } else { L::N };
    }
}

macro_rules! word {
    ($Word:ty, $Wide:ty, $Avx2:ty, $wide:ident, $avx2:ident, $wide_strided:ident, $avx2_strided:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
        unsafe fn $wide(job: &Job<$Word>, to: &mut Sums<$Word>) {
            // SAFETY: passed on to the caller.
            unsafe { tile::<super::lanes::Wide<$Wide>, 2>(job, to) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $avx2(job: &Job<$Word>, to: &mut Sums<$Word>) {
            // SAFETY: passed on to the caller.
            unsafe { tile::<Numbers<$Avx2>, 1>(job, to) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
        unsafe fn $wide_strided(job: &Strided<$Word>) {
            // SAFETY: passed on to the caller.
            unsafe { strided::<super::lanes::Wide<$Wide>, 8, 2>(job) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $avx2_strided(job: &Strided<$Word>) {
            // A word of the left operand needs a load and an address of its own, since the steps between rows are not known here. Few rows and two
            // vectors need the fewest of them for eight sums, which is as many as keep the processor's multiplications busy.
            // SAFETY: passed on to the caller.
            unsafe { strided::<Numbers<$Avx2>, 4, 2>(job) }
        }
        impl StridedProduct for $Word {
            unsafe fn strided(job: &Strided<Self>) {
                // SAFETY: `level` found these features on this processor; the caller asserts the rest.
                unsafe {
                    match level() {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => $wide_strided(job),
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => $avx2_strided(job),
                        Level::Baseline => strided::<Numbers<Plain4<$Word>>, 8, 1>(job),
                    }
                }
            }
        }
        impl Word for $Word {
            type Sum = $Word;
            const TERMS: usize = 1;
            #[inline]
            unsafe fn tile(job: &Job<Self>, sums: &mut Sums<Self>) {
                // SAFETY: `level` found these features on this processor.
                unsafe { Self::tile_at(level(), job, sums) }
            }
        }
        impl TileAt for $Word {
            unsafe fn tile_at(level: Level, job: &Job<Self>, sums: &mut Sums<Self>) {
                // SAFETY: the caller asserts that the processor has the level, and the rest.
                unsafe {
                    match level {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => $wide(job, sums),
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => $avx2(job, sums),
                        Level::Baseline => tile::<Numbers<Plain4<$Word>>, 1>(job, sums),
                    }
                }
            }
        }
    };
}
word!(
    f32,
    std::arch::x86_64::__m512,
    std::arch::x86_64::__m256,
    wide_f32,
    avx2_f32,
    wide_strided_f32,
    avx2_strided_f32
);
word!(
    f64,
    std::arch::x86_64::__m512d,
    std::arch::x86_64::__m256d,
    wide_f64,
    avx2_f64,
    wide_strided_f64,
    avx2_strided_f64
);

/// Computes a product of f32 or of f64.
///
/// # Safety
/// The operands exist as described, and the result is the caller's alone.
pub(crate) unsafe fn strided_product<R: Real>(job: &Strided<R>) {
    // SAFETY: passed on to the caller; the type is the one that is asked for.
    unsafe {
        if std::any::TypeId::of::<R>() == std::any::TypeId::of::<f32>() {
            f32::strided(&job.of_type());
        } else {
            assert!(std::any::TypeId::of::<R>() == std::any::TypeId::of::<f64>(), "a third real type");
            f64::strided(&job.of_type());
        }
    }
}

impl<R> Strided<R> {
    /// Returns the same addresses with another type of numbers, `Q`.
    fn of_type<Q>(&self) -> Strided<Q> {
        let Self { sizes, left, row, step, right, width, to, to_row, add } = *self;
        Strided { sizes, left: left.cast(), row, step, right: right.cast(), width, to: to.cast(), to_row, add }
    }
}

/// Types with products that need no blocks.
trait StridedProduct: Sized {
    /// # Safety
    /// The operands exist as described, and the result is the caller's alone.
    unsafe fn strided(job: &Strided<Self>);
}

/// Words whose tiles can be computed with the instructions of a given level.
pub(super) trait TileAt: Word {
    /// # Safety
    /// The processor has the level, and what `job` names exists.
    unsafe fn tile_at(level: Level, job: &Job<Self>, sums: &mut Sums<Self::Sum>);
}

impl Word for Pair {
    type Sum = f32;
    const TERMS: usize = 2;
    #[inline]
    unsafe fn tile(job: &Job<Self>, sums: &mut Sums<f32>) {
        // SAFETY: passed on to the caller; the instruction is there.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if has_bf16_products() {
                return pairs(job, sums);
            }
            plain_pairs(job, sums);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn pairs(job: &Job<Pair>, to: &mut Sums<f32>) {
    // SAFETY: passed on to the caller.
    unsafe { tile::<super::lanes::Wide<std::arch::x86_64::__m512i>, 2>(job, to) }
}

/// Computes a tile of pairs without the bf16 instruction. Tests compare the instruction with it.
///
/// # Safety
/// What `job` names exists.
pub(super) unsafe fn plain_pairs(job: &Job<Pair>, to: &mut Sums<f32>) {
    // SAFETY: passed on to the caller.
    unsafe { tile::<PlainPair, 4>(job, to) }
}
