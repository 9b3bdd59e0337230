//! Transforms of patches, windows, sums and the gradient, for many blocks (or outputs) side by side.

use crate::conv::stage::Run;
use crate::panels::{ROWS, Sums, WIDTH};
use crate::simd::{Isa, simd};
use crate::vector::Vector;

/// Number of elements of a patch, and of its transform.
pub(super) const AREA: usize = 16;
/// Maximum number of elements of a vector. Up to this many elements beyond a run are overwritten.
pub(super) const SPILL: usize = 8;

/// Staged channels, and the layout of their transformed patches.
pub(super) struct Patches<'a> {
    pub(super) staged: &'a [f32],
    /// Distances from a run's beginning to the patch's elements.
    pub(super) offsets: [usize; AREA],
    pub(super) runs: &'a [Run],
    pub(super) channels: usize,
    /// Number of elements from one staged channel to the next.
    pub(super) channel: usize,
    /// Number of elements from one channel's results to the next, and from one of the sixteen results to the next.
    pub(super) row: usize,
    pub(super) apart: usize,
}

simd! {
    /// Computes `Bᵀ d B` of every patch `d` of the runs. Overwrites up to [`SPILL`] elements after each channel's results.
    pub(super) fn patches(p: &Patches<'_>, to: &mut [f32]) = patches_body;
    /// Computes `Aᵀ m A` of each column of sixteen tiles, adds the bias, and writes the result to the target.
    pub(super) fn write(w: &Written<'_>, sums: &[Sums<f32>; AREA]) = write_body;
    /// Computes `G g Gᵀ` of `ROWS` windows.
    pub(super) fn windows(g: &[[f32; ROWS]; 9], to: &mut [[f32; ROWS]; AREA]) = windows_body;
    /// Computes `A y Aᵀ` of gradients `y` of 2 × 2 that lie side by side. The four elements are `from_apart` elements apart, the sixteen results
    /// `apart`.
    pub(super) fn gradients(from: &[f32], from_apart: usize, to: &mut [f32], apart: usize) = gradients_body;
    /// Computes `Gᵀ u G` of sixteen rows of sums, `apart` elements apart.
    pub(super) fn window_gradients(sums: &[f32], apart: usize, to: &mut [[f32; WIDTH]; 9]) = window_gradients_body;
}

#[inline(always)]
fn patches_body<S: Isa>(p: &Patches<'_>, to: &mut [f32]) {
    let (Some(last), Some(far)) = (p.runs.last(), p.offsets.iter().max()) else { return };
    let n = <S::F32 as Vector<f32>>::N;
    let rows = p.channels.saturating_sub(1);
    assert!(n <= SPILL && to.len() >= (AREA - 1) * p.apart + rows * p.row + last.column + last.len + SPILL);
    for run in p.runs {
        assert!(run.column + run.len <= last.column + last.len);
        assert!(p.staged.len() >= rows * p.channel + run.at + far + run.len + SPILL);
    }
    for channel in 0..p.channels {
        for run in p.runs {
            let mut i = 0;
            while i < run.len {
                // SAFETY: vectors that begin within the runs, and end at most `SPILL` elements after them, lie in both slices (asserted above).
                unsafe {
                    let from = p.staged.as_ptr().add(channel * p.channel + run.at + i);
                    let to = to.as_mut_ptr().add(channel * p.row + run.column + i);
                    patch::<S::F32>(from, &p.offsets, to, p.apart);
                }
                i += n;
            }
        }
    }
}

/// # Safety
/// A vector lies at each of the offsets, and there is room for sixteen, `apart` elements apart.
#[inline(always)]
// Plain loops, here and below, because some iterators with closures are not inlined, and are then compiled without the vector instructions.
#[allow(clippy::needless_range_loop)]
unsafe fn patch<V: Vector<f32>>(from: *const f32, offsets: &[usize; AREA], to: *mut f32, apart: usize) {
    let mut t = [[V::splat(0.0); 4]; 4];
    for j in 0..4 {
        // SAFETY: as the caller asserts; so below.
        let d = unsafe {
            [
                V::load(from.add(offsets[j])),
                V::load(from.add(offsets[4 + j])),
                V::load(from.add(offsets[8 + j])),
                V::load(from.add(offsets[12 + j])),
            ]
        };
        t[0][j] = d[0].sub(d[2]);
        t[1][j] = d[1].add(d[2]);
        t[2][j] = d[2].sub(d[1]);
        t[3][j] = d[1].sub(d[3]);
    }
    for i in 0..4 {
        let to = to.wrapping_add(4 * i * apart);
        // SAFETY: as above.
        unsafe {
            t[i][0].sub(t[i][2]).store(to);
            t[i][1].add(t[i][2]).store(to.add(apart));
            t[i][2].sub(t[i][1]).store(to.add(2 * apart));
            t[i][1].sub(t[i][3]).store(to.add(3 * apart));
        }
    }
}

/// Blocks that lie side by side in the target.
#[derive(Clone, Copy)]
pub(super) struct Line {
    /// Column of the first block in the tile.
    pub(super) column: usize,
    /// Index of the first block's first point in the first output's plane.
    pub(super) at: usize,
    /// Points of a row, and rows. They may be fewer than the blocks have, because the target may end within the blocks.
    pub(super) points: usize,
    pub(super) rows: usize,
}

/// Destination of sums.
pub(super) struct Written<'a> {
    /// Address of the first output's plane of the first image.
    pub(super) to: *mut f32,
    /// Number of elements from one output to the next, and from one row of the target to the next.
    pub(super) pixels: usize,
    pub(super) across: usize,
    pub(super) rows: usize,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) lines: &'a [Line],
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn write_body<S: Isa>(w: &Written<'_>, sums: &[Sums<f32>; AREA]) {
    for row in 0..w.rows {
        let bias = match w.bias {
            Some(bias) => bias[row],
            None => 0.0,
        };
        let mut points = [[[0.0; WIDTH]; 2]; 2];
        let mut column = 0;
        while column < WIDTH {
            // SAFETY: whole vectors of `WIDTH` columns.
            unsafe { block::<S::F32>(sums, [row, column], bias, &mut points) };
            column += <S::F32 as Vector<f32>>::N;
        }
        for y in 0..2 {
            let mut pixels = [0.0; 2 * WIDTH];
            for i in 0..WIDTH {
                pixels[2 * i] = points[y][0][i];
                pixels[2 * i + 1] = points[y][1][i];
            }
            for line in w.lines {
                if y < line.rows {
                    let from = &pixels[2 * line.column..][..line.points];
                    let to = w.to.wrapping_add(row * w.pixels + line.at + y * w.across);
                    // SAFETY: points of the target, which `Written`'s maker has for itself.
                    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
                }
            }
        }
    }
}

/// # Safety
/// A vector's columns are left in the tiles.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn block<V: Vector<f32>>(
    sums: &[Sums<f32>; AREA],
    [row, column]: [usize; 2],
    bias: f32,
    points: &mut [[[f32; WIDTH]; 2]; 2],
) {
    let bias = V::splat(bias);
    let mut t = [[bias; 4]; 2];
    for j in 0..4 {
        // SAFETY: as the caller asserts; so below.
        let m = unsafe {
            [
                V::load(sums[j].0[row].as_ptr().add(column)),
                V::load(sums[4 + j].0[row].as_ptr().add(column)),
                V::load(sums[8 + j].0[row].as_ptr().add(column)),
                V::load(sums[12 + j].0[row].as_ptr().add(column)),
            ]
        };
        t[0][j] = m[0].add(m[1]).add(m[2]);
        t[1][j] = m[1].sub(m[2]).sub(m[3]);
    }
    for y in 0..2 {
        // SAFETY: as above.
        unsafe {
            let [first, second] = &mut points[y];
            t[y][0].add(t[y][1]).add(t[y][2]).add(bias).store(first.as_mut_ptr().add(column));
            t[y][1].sub(t[y][2]).sub(t[y][3]).add(bias).store(second.as_mut_ptr().add(column));
        }
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn windows_body<S: Isa>(g: &[[f32; ROWS]; 9], to: &mut [[f32; ROWS]; AREA]) {
    let mut t = [[[0.0; ROWS]; 3]; 4];
    for x in 0..3 {
        for r in 0..ROWS {
            let (a, b, c) = (g[x][r], g[3 + x][r], g[6 + x][r]);
            t[0][x][r] = a;
            t[1][x][r] = 0.5 * (a + c + b);
            t[2][x][r] = 0.5 * (a + c - b);
            t[3][x][r] = c;
        }
    }
    for y in 0..4 {
        for r in 0..ROWS {
            let (a, b, c) = (t[y][0][r], t[y][1][r], t[y][2][r]);
            to[4 * y][r] = a;
            to[4 * y + 1][r] = 0.5 * (a + c + b);
            to[4 * y + 2][r] = 0.5 * (a + c - b);
            to[4 * y + 3][r] = c;
        }
    }
}

#[inline(always)]
fn gradients_body<S: Isa>(from: &[f32], from_apart: usize, to: &mut [f32], apart: usize) {
    let n = <S::F32 as Vector<f32>>::N;
    assert!(from_apart.is_multiple_of(n) && from.len() >= 4 * from_apart);
    assert!(to.len() >= (AREA - 1) * apart + from_apart);
    let mut i = 0;
    while i < from_apart {
        // SAFETY: whole vectors of each of the four, and of each of the sixteen (asserted above).
        unsafe { gradient::<S::F32>(from.as_ptr().add(i), from_apart, to.as_mut_ptr().add(i), apart) };
        i += n;
    }
}

/// # Safety
/// Four vectors lie at `from`, `from_apart` elements apart, and there is room for sixteen.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn gradient<V: Vector<f32>>(from: *const f32, from_apart: usize, to: *mut f32, apart: usize) {
    let zero = V::splat(0.0);
    let mut t = [[zero; 2]; 4];
    for x in 0..2 {
        // SAFETY: as the caller asserts; so below.
        let (a, b) = unsafe { (V::load(from.add(x * from_apart)), V::load(from.add((2 + x) * from_apart))) };
        t[0][x] = a;
        t[1][x] = a.add(b);
        t[2][x] = a.sub(b);
        t[3][x] = zero.sub(b);
    }
    for y in 0..4 {
        let (a, b) = (t[y][0], t[y][1]);
        let to = to.wrapping_add(4 * y * apart);
        // SAFETY: as above.
        unsafe {
            a.store(to);
            a.add(b).store(to.add(apart));
            a.sub(b).store(to.add(2 * apart));
            zero.sub(b).store(to.add(3 * apart));
        }
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn window_gradients_body<S: Isa>(sums: &[f32], apart: usize, to: &mut [[f32; WIDTH]; 9]) {
    let mut t = [[[0.0; WIDTH]; 4]; 3];
    for x in 0..4 {
        let (a, b) = (&sums[x * apart..][..WIDTH], &sums[(4 + x) * apart..][..WIDTH]);
        let (c, d) = (&sums[(8 + x) * apart..][..WIDTH], &sums[(12 + x) * apart..][..WIDTH]);
        for i in 0..WIDTH {
            let (sum, difference) = (0.5 * (b[i] + c[i]), 0.5 * (b[i] - c[i]));
            t[0][x][i] = a[i] + sum;
            t[1][x][i] = difference;
            t[2][x][i] = sum + d[i];
        }
    }
    for y in 0..3 {
        for i in 0..WIDTH {
            let (b, c) = (t[y][1][i], t[y][2][i]);
            to[3 * y][i] = t[y][0][i] + 0.5 * (b + c);
            to[3 * y + 1][i] = 0.5 * (b - c);
            to[3 * y + 2][i] = 0.5 * (b + c) + t[y][3][i];
        }
    }
}
