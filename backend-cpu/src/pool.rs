//! Max and average pooling and their gradients. Both directions go by rows of their output, so that one task writes each element.
//! Sums of overlapping windows are computed in the compute type, in a fixed order.

use std::ops::Range;

use memcore::backend::Operand;
use memcore::backend::kernel::{Pool2d, Pool2dGeometry, Pool2dGrad};
use memcore::error::Result;

use crate::element::{Float, Number, Real, float_type};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Approximate number of visits of window elements per task.
const TASK: usize = 16 << 10;
/// Number of columns that are processed together.
const BLOCK: usize = 128;

/// Number of sums that collect, unused, the gradients of other blocks. There are several, so that additions do not wait for each other.
const ELSEWHERE: usize = 8;

/// True if positions in a plane of `x` fit 32 bits.
pub(crate) fn supports(x: &Operand) -> bool {
    x.dims()[2].saturating_mul(x.dims()[3]) < u32::MAX as usize
}

/// Reduces a window for each element of `out`: to its maximum and position, or to its mean.
pub(crate) fn pool2d(ctx: &Context<'_>, k: &Pool2d) -> Result<()> {
    float_type!(k.x.dtype, T => forward::<T>(ctx, k), else Ok(()))
}

/// Computes the gradient of [`pool2d`]. Each element of the input gathers its own.
pub(crate) fn pool2d_grad(ctx: &Context<'_>, k: &Pool2dGrad) -> Result<()> {
    float_type!(k.grad.dtype, T => backward::<T>(ctx, k), else Ok(()))
}

/// Geometry and sizes of planes.
#[derive(Clone, Copy)]
struct Shape {
    geometry: Pool2dGeometry,
    input: [usize; 2],
    output: [usize; 2],
}

impl Shape {
    fn new(geometry: Pool2dGeometry, x: &Operand, y: &Operand) -> Self {
        let (x, y) = (x.dims(), y.dims());
        Self { geometry, input: [x[2], x[3]], output: [y[2], y[3]] }
    }

    /// True if windows of 2 by 2 tile the plane, which is the common case.
    #[inline(always)]
    fn halves(&self) -> bool {
        let g = &self.geometry;
        g.window == [2, 2] && g.stride == [2, 2] && g.padding == [0, 0]
    }

    /// Returns the positions along `axis` that window `i` covers inside the plane.
    #[inline(always)]
    fn covered(&self, axis: usize, i: usize) -> Range<usize> {
        let g = &self.geometry;
        let (first, padding) = (i * g.stride[axis], g.padding[axis]);
        first.saturating_sub(padding)..(first + g.window[axis]).saturating_sub(padding).min(self.input[axis])
    }

    /// Returns the windows along `axis` that cover any of these positions.
    #[inline(always)]
    fn covering(&self, axis: usize, at: Range<usize>) -> Range<usize> {
        let g = &self.geometry;
        let first = (at.start + g.padding[axis] + 1).saturating_sub(g.window[axis]).div_ceil(g.stride[axis]);
        first..((at.end + g.padding[axis] - 1) / g.stride[axis] + 1).min(self.output[axis])
    }

    /// Returns the windows among `windows` whose column `kj` lies in `columns`.
    #[inline(always)]
    fn inside(&self, kj: usize, windows: &Range<usize>, columns: &Range<usize>) -> Range<usize> {
        let (stride, padding) = (self.geometry.stride[1], self.geometry.padding[1]);
        let reaching = |column: usize| {
            let distance = (column + padding).saturating_sub(kj);
            // Divisions take longer than the additions of a short row.
            if stride == 1 { distance } else { distance.div_ceil(stride) }
        };
        let start = reaching(columns.start).max(windows.start);
        start..reaching(columns.end).min(windows.end).max(start)
    }

    /// Returns the position of column `kj` of window `j`, which must lie inside the plane.
    #[inline(always)]
    fn column(&self, j: usize, kj: usize) -> usize {
        j * self.geometry.stride[1] + kj - self.geometry.padding[1]
    }
}

/// Returns the columns of a row of `n`, in blocks.
#[inline(always)]
fn blocks(n: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(n))
}

/// Copies every `stride`-th element of `line` side by side, so that the loops over the copies are compiled to vectors.
#[inline(always)]
// Plain loops, which the compiler turns into shuffles if it knows the stride.
#[allow(clippy::needless_range_loop)]
fn gather<T: Float>(line: &[T], stride: usize, to: &mut [T::Compute]) {
    let Some(last) = to.len().checked_sub(1) else { return };
    let line = &line[..=last * stride];
    match stride {
        1 => {
            for i in 0..to.len() {
                to[i] = line[i].get();
            }
        }
        2 => {
            for i in 0..to.len() {
                to[i] = line[2 * i].get();
            }
        }
        _ => {
            for i in 0..to.len() {
                to[i] = line[stride * i].get();
            }
        }
    }
}

fn forward<T: Float>(ctx: &Context<'_>, k: &Pool2d) -> Result<()> {
    let shape = Shape::new(k.geometry, &k.x, &k.out);
    let [n, c, oh, ow] = *k.out.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (x, out, indices) =
        unsafe { (ctx.input::<T>(&k.x)?, ctx.output::<T>(&k.out)?, ctx.output_option::<i64>(&k.indices)?) };
    let (out, indices) = (SharedMut::new(out), indices.map(SharedMut::new));
    let visits = (ow * k.geometry.window[0] * k.geometry.window[1]).max(1);
    ctx.for_pieces(n * c * oh, TASK.div_ceil(visits), visits, |start, end| {
        let (first, len) = (start * ow, (end - start) * ow);
        // SAFETY: rows are disjoint, those of the indices too.
        let (out, indices) = unsafe { (out.part(first, len), indices.map(|i| i.part(first, len))) };
        match indices {
            Some(indices) => max_rows(shape, x, start..end, out, indices),
            None => average_rows(shape, x, start..end, out),
        }
    });
    Ok(())
}

fn backward<T: Float>(ctx: &Context<'_>, k: &Pool2dGrad) -> Result<()> {
    let shape = Shape::new(k.geometry, &k.out, &k.grad);
    let [n, c, h, w] = *k.out.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (grad, indices, out) =
        unsafe { (ctx.input::<T>(&k.grad)?, ctx.input_option::<i64>(&k.indices)?, ctx.output::<T>(&k.out)?) };
    let out = SharedMut::new(out);
    let overlap = k.geometry.window[0].div_ceil(k.geometry.stride[0]).min(shape.output[0]).max(1);
    let visits = (w * overlap).max(1);
    ctx.for_pieces(n * c * h, TASK.div_ceil(visits), visits, |start, end| {
        // SAFETY: rows are disjoint.
        let out = unsafe { out.part(start * w, (end - start) * w) };
        match indices {
            Some(indices) => max_grad_rows(shape, grad, indices, start..end, out),
            None => average_grad_rows(shape, grad, start..end, out),
        }
    });
    Ok(())
}

simd! {
    /// Computes rows `rows` of all planes' results.
    fn max_rows<T: Float>(shape: Shape, x: &[T], rows: Range<usize>, out: &mut [T], indices: &mut [i64]) = max_rows_body;
    fn average_rows<T: Float>(shape: Shape, x: &[T], rows: Range<usize>, out: &mut [T]) = average_rows_body;
    /// Computes rows `rows` of all planes' gradients.
    fn max_grad_rows<T: Float>(
        shape: Shape, grad: &[T], indices: &[i64], rows: Range<usize>, out: &mut [T],
    ) = max_grad_rows_body;
    fn average_grad_rows<T: Float>(shape: Shape, grad: &[T], rows: Range<usize>, out: &mut [T]) = average_grad_rows_body;
}

/// True if a later element replaces an earlier one: if it is larger, or the first NaN.
#[inline(always)]
fn beats<R: Real>(new: R, old: R) -> bool {
    (new > old) | (new.is_nan() & !old.is_nan())
}

#[inline(always)]
fn max_rows_body<S: Isa, T: Float>(shape: Shape, x: &[T], rows: Range<usize>, out: &mut [T], indices: &mut [i64]) {
    let ([h, w], [oh, ow]) = (shape.input, shape.output);
    for (at, row) in rows.enumerate() {
        let (plane, i) = (&x[row / oh * h * w..][..h * w], row % oh);
        let (out, indices) = (&mut out[at * ow..][..ow], &mut indices[at * ow..][..ow]);
        if shape.halves() {
            max_of_pairs(&plane[2 * i * w..][..w], &plane[(2 * i + 1) * w..][..w], 2 * i * w, out, indices);
            continue;
        }
        for block in blocks(ow) {
            max_block(&shape, plane, i, &block, &mut out[block.clone()], &mut indices[block.clone()]);
        }
    }
}

/// Reduces windows of 2 by 2 in the rows `upper` and `lower`. The first row begins at position `first` of its plane.
#[inline(always)]
fn max_of_pairs<T: Float>(upper: &[T], lower: &[T], first: usize, out: &mut [T], indices: &mut [i64]) {
    let width = upper.len() as u32;
    let pairs = upper.chunks_exact(2).zip(lower.chunks_exact(2));
    for (j, ((o, index), (a, b))) in out.iter_mut().zip(indices).zip(pairs).enumerate() {
        let (mut best, mut place) = (a[0].get(), 0);
        for (x, at) in [(a[1], 1), (b[0], width), (b[1], width + 1)] {
            let x = x.get();
            let take = beats(x, best);
            best = if take { x } else { best };
            place = if take { at } else { place };
        }
        *o = T::put(best);
        *index = (first + 2 * j) as i64 + place as i64;
    }
}

#[inline(always)]
fn max_block<T: Float>(shape: &Shape, plane: &[T], i: usize, block: &Range<usize>, out: &mut [T], indices: &mut [i64]) {
    const NOWHERE: u32 = u32::MAX;
    let (w, [_, stride]) = (shape.input[1], shape.geometry.stride);
    let mut best = [T::Compute::LOWEST; BLOCK];
    // Positions in supported planes fit 32 bits, which compare and select as fast as floats.
    let mut places = [NOWHERE; BLOCK];
    for y in shape.covered(0, i) {
        for kj in 0..shape.geometry.window[1] {
            let windows = shape.inside(kj, block, &(0..w));
            if windows.is_empty() {
                continue;
            }
            let first = y * w + shape.column(windows.start, kj);
            let here = windows.start - block.start..windows.end - block.start;
            let mut row = [T::Compute::default(); BLOCK];
            let row = &mut row[..here.len()];
            gather(&plane[first..(y + 1) * w], stride, row);
            let so_far = best[here.clone()].iter_mut().zip(&mut places[here]);
            for (i, ((best, place), &mut x)) in so_far.zip(row).enumerate() {
                // Takes the first element of a window too, so that the first of several −∞ is found.
                let take = beats(x, *best) | (*place == NOWHERE);
                *best = if take { x } else { *best };
                *place = if take { (first as u32).wrapping_add(i as u32 * stride as u32) } else { *place };
            }
        }
    }
    for ((o, index), (best, place)) in out.iter_mut().zip(indices).zip(best.into_iter().zip(places)) {
        *o = T::put(best);
        *index = if place == NOWHERE { 0 } else { place as i64 };
    }
}

#[inline(always)]
fn average_rows_body<S: Isa, T: Float>(shape: Shape, x: &[T], rows: Range<usize>, out: &mut [T]) {
    let ([h, w], [oh, ow], [wh, ww]) = (shape.input, shape.output, shape.geometry.window);
    let size = <T::Compute as Number>::from_f64((wh * ww) as f64);
    for (at, row) in rows.enumerate() {
        let (plane, i) = (&x[row / oh * h * w..][..h * w], row % oh);
        let out = &mut out[at * ow..][..ow];
        if shape.halves() {
            let (upper, lower) = (&plane[2 * i * w..][..w], &plane[(2 * i + 1) * w..][..w]);
            for ((o, a), b) in out.iter_mut().zip(upper.chunks_exact(2)).zip(lower.chunks_exact(2)) {
                *o = T::put(((a[0].get() + a[1].get()) + (b[0].get() + b[1].get())) / size);
            }
            continue;
        }
        for block in blocks(ow) {
            let sums = block_sums(&shape, plane, i, &block);
            for (o, sum) in out[block].iter_mut().zip(sums) {
                *o = T::put(sum / size);
            }
        }
    }
}

/// Sums the windows `block` of row `i`: each window's rows first, which keeps the error of large windows small.
#[inline(always)]
fn block_sums<T: Float>(shape: &Shape, plane: &[T], i: usize, block: &Range<usize>) -> [T::Compute; BLOCK] {
    let (w, [_, stride]) = (shape.input[1], shape.geometry.stride);
    let zero = T::Compute::default();
    let mut sums = [zero; BLOCK];
    for y in shape.covered(0, i) {
        let mut row = [zero; BLOCK];
        for kj in 0..shape.geometry.window[1] {
            let windows = shape.inside(kj, block, &(0..w));
            if windows.is_empty() {
                continue;
            }
            let line = &plane[y * w + shape.column(windows.start, kj)..(y + 1) * w];
            let row = &mut row[windows.start - block.start..windows.end - block.start];
            let mut seen = [zero; BLOCK];
            gather(line, stride, &mut seen[..row.len()]);
            for (sum, x) in row.iter_mut().zip(seen) {
                *sum = *sum + x;
            }
        }
        for (sum, row) in sums[..block.len()].iter_mut().zip(row) {
            *sum = *sum + row;
        }
    }
    sums
}

/// Computes a row of the input's gradient if windows are 2 by 2: each element is in one window at most. The row begins at position `first` of its plane.
///
/// A plain loop, which is compiled to vectors. Iterators stayed in memory here: the kernel took ten times as long.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn max_grad_of_pairs<T: Float>(grad: &[T], indices: &[i64], first: usize, out: &mut [T]) {
    let zero = T::put(T::Compute::default());
    let windows = grad.len();
    let (pairs, rest) = out.split_at_mut(2 * windows);
    let indices = &indices[..windows];
    rest.fill(zero);
    for j in 0..windows {
        let (g, place) = (grad[j], indices[j].wrapping_sub((first + 2 * j) as i64));
        pairs[2 * j] = if place == 0 { g } else { zero };
        pairs[2 * j + 1] = if place == 1 { g } else { zero };
    }
}

#[inline(always)]
fn max_grad_rows_body<S: Isa, T: Float>(shape: Shape, grad: &[T], indices: &[i64], rows: Range<usize>, out: &mut [T]) {
    let ([h, w], [oh, ow]) = (shape.input, shape.output);
    for (at, row) in rows.enumerate() {
        let (plane, y) = (row / h * oh * ow, row % h);
        let (grad, indices) = (&grad[plane..][..oh * ow], &indices[plane..][..oh * ow]);
        let out = &mut out[at * w..][..w];
        if shape.halves() {
            let windows = if y / 2 < oh { y / 2 * ow..(y / 2 + 1) * ow } else { 0..0 };
            max_grad_of_pairs(&grad[windows.clone()], &indices[windows], y * w, out);
            continue;
        }
        for block in blocks(w) {
            let mut sums = [T::Compute::default(); BLOCK + ELSEWHERE];
            let first = (y * w + block.start) as i64;
            let columns = shape.covering(1, block.clone());
            for i in shape.covering(0, y..y + 1) {
                for at in i * ow + columns.start..i * ow + columns.end {
                    // An index of another row or block is out of range here. A branch on it would be mispredicted half of the time.
                    let place = indices[at].wrapping_sub(first) as usize;
                    let place = if place < BLOCK { place } else { BLOCK + at % ELSEWHERE };
                    sums[place] = sums[place] + grad[at].get();
                }
            }
            for (o, sum) in out[block].iter_mut().zip(sums) {
                *o = T::put(sum);
            }
        }
    }
}

#[inline(always)]
fn average_grad_rows_body<S: Isa, T: Float>(shape: Shape, grad: &[T], rows: Range<usize>, out: &mut [T]) {
    let ([h, w], [oh, ow], [wh, ww]) = (shape.input, shape.output, shape.geometry.window);
    let size = <T::Compute as Number>::from_f64((wh * ww) as f64);
    for (at, row) in rows.enumerate() {
        let (plane, y) = (row / h * oh * ow, row % h);
        let grad = &grad[plane..][..oh * ow];
        let out = &mut out[at * w..][..w];
        if shape.halves() {
            let whole = if y / 2 < oh { 2 * ow } else { 0 };
            let (pairs, rest) = out.split_at_mut(whole);
            rest.fill(T::put(T::Compute::default()));
            for (pair, g) in pairs.chunks_exact_mut(2).zip(grad.iter().skip(y / 2 * ow)) {
                pair.fill(T::put(g.get() / size));
            }
            continue;
        }
        for block in blocks(w) {
            let sums = block_grads(&shape, grad, y, &block);
            for (o, sum) in out[block].iter_mut().zip(sums) {
                *o = T::put(sum / size);
            }
        }
    }
}

/// Sums over the windows that cover the columns `block` of row `y`: over rows of windows first, then over their columns.
#[inline(always)]
fn block_grads<T: Float>(shape: &Shape, grad: &[T], y: usize, block: &Range<usize>) -> [T::Compute; BLOCK] {
    let (ow, [_, stride]) = (shape.output[1], shape.geometry.stride);
    let mut sums = [T::Compute::default(); BLOCK];
    let columns = shape.covering(1, block.clone());
    for start in columns.clone().step_by(BLOCK) {
        let some = start..(start + BLOCK).min(columns.end);
        let mut down = [T::Compute::default(); BLOCK];
        for i in shape.covering(0, y..y + 1) {
            for (sum, g) in down.iter_mut().zip(&grad[i * ow + some.start..i * ow + some.end]) {
                *sum = *sum + g.get();
            }
        }
        for kj in 0..shape.geometry.window[1] {
            let windows = shape.inside(kj, &some, block);
            if windows.is_empty() {
                continue;
            }
            let to = &mut sums[shape.column(windows.start, kj) - block.start..];
            let from = &down[windows.start - some.start..windows.end - some.start];
            if stride == 1 {
                to.iter_mut().zip(from).for_each(|(sum, &g)| *sum = *sum + g);
            } else {
                to.iter_mut().step_by(stride).zip(from).for_each(|(sum, &g)| *sum = *sum + g);
            }
        }
    }
    sums
}
