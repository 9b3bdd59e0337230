//! int8 rows with one scale per row.

use memcore::backend::kernel::{DequantizeInt8, MatmulInt8, QuantizeInt8};
use memcore::error::Result;

use crate::element::{Float, Number, Real, float_type};
use crate::lanes::{LargestMagnitude, fold};
use crate::parallel::SCRATCH_BYTES;
use crate::product::{Mat, MatMut, product};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Elements per task.
const TASK: usize = 16 << 10;

/// For each row: `scale = max|x| / 127`, `out = round(x/scale)`.
pub(crate) fn quantize_int8(ctx: &Context<'_>, k: &QuantizeInt8) -> Result<()> {
    float_type!(k.x.dtype, T => quantize::<T>(ctx, k), else Ok(()))
}

fn quantize<T: Float>(ctx: &Context<'_>, k: &QuantizeInt8) -> Result<()> {
    let [rows, n] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (x, out, scales) = unsafe { (ctx.input::<T>(&k.x)?, ctx.output::<i8>(&k.out)?, ctx.output::<f32>(&k.scale)?) };
    let (out, scales) = (SharedMut::new(out), SharedMut::new(scales));
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        for row in start..end {
            // SAFETY: rows are disjoint.
            let (out, scale) = unsafe { (out.part(row * n, n), out_scale(scales, row)) };
            *scale = quantize_row(&x[row * n..(row + 1) * n], out);
        }
    });
    Ok(())
}

/// # Safety
/// `row` is below the number of rows and this task's own.
unsafe fn out_scale<'a>(scales: SharedMut<f32>, row: usize) -> &'a mut f32 {
    // SAFETY: passed on to the caller.
    unsafe { &mut *scales.get().add(row) }
}

/// `out = x·scale[row]`.
pub(crate) fn dequantize_int8(ctx: &Context<'_>, k: &DequantizeInt8) -> Result<()> {
    float_type!(k.out.dtype, T => dequantize::<T>(ctx, k), else Ok(()))
}

fn dequantize<T: Float>(ctx: &Context<'_>, k: &DequantizeInt8) -> Result<()> {
    let [rows, n] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and the output is taken once.
    let (x, scales, out) = unsafe { (ctx.input::<i8>(&k.x)?, ctx.input::<f32>(&k.scale)?, ctx.output::<T>(&k.out)?) };
    let out = SharedMut::new(out);
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        for row in start..end {
            // SAFETY: rows are disjoint.
            let out = unsafe { out.part(row * n, n) };
            dequantize_row(&x[row * n..(row + 1) * n], scales[row], out);
        }
    });
    Ok(())
}

simd! {
    fn quantize_row<T: Float>(x: &[T], out: &mut [i8]) -> f32 = quantize_row_body;
    fn dequantize_row<T: Float>(x: &[i8], scale: f32, out: &mut [T]) = dequantize_row_body;
}

#[inline(always)]
fn quantize_row_body<S: Isa, T: Float>(x: &[T], out: &mut [i8]) -> f32 {
    let to_f32 = |x: T| x.get().to_f64() as f32;
    let largest = fold::<S, T>(LargestMagnitude, x).to_f64() as f32;
    let scale = if largest <= 0.0 { 1.0 } else { largest / 127.0 };
    for (o, &x) in out.iter_mut().zip(x) {
        // A division, not a product with the inverse, because ties must fall as in the contract.
        *o = nearest_i8((to_f32(x) / scale).clamp(-127.0, 127.0));
    }
    scale
}

/// Returns the nearest integer to a number from −127 to 127; of two, the even one; 0 for NaN. If the last place is worth 1, the sum itself
/// rounds this way, and its low byte is the integer. A loop of saturating conversions would not be vectorised.
#[inline(always)]
fn nearest_i8(x: f32) -> i8 {
    const LAST_PLACE_IS_ONE: f32 = 12_582_912.0; // 1.5·2²³
    let rounded = (x + LAST_PLACE_IS_ONE).to_bits() as i8;
    if x.is_nan() { 0 } else { rounded }
}

#[inline(always)]
fn dequantize_row_body<S: Isa, T: Float>(x: &[i8], scale: f32, out: &mut [T]) {
    let scale = <T::Compute as Number>::from_f64(scale as f64);
    for (o, &x) in out.iter_mut().zip(x) {
        *o = T::put(<T::Compute as Number>::from_f64(x as f64) * scale);
    }
}

/// `out = x @ (weight·scale)ᵀ + bias`, block by block in the thread's scratch, so that neither operand is widened as a whole.
pub(crate) fn matmul_int8(ctx: &Context<'_>, k: &MatmulInt8) -> Result<()> {
    float_type!(k.x.dtype, T => int8_product::<T>(ctx, k), else Ok(()))
}

/// Sizes of a block: rows of `x`, rows of the weight, and terms.
const BLOCK: [usize; 3] = [128, 128, 256];

fn int8_product<T: Float>(ctx: &Context<'_>, k: &MatmulInt8) -> Result<()> {
    let (&[m, inner], &[n, _]) = (k.x.dims(), k.weight.dims()) else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases the written one, which is taken once.
    let (x, weight, scales, bias, out) = unsafe {
        (
            ctx.input::<T>(&k.x)?,
            ctx.input::<i8>(&k.weight)?,
            ctx.input::<f32>(&k.scale)?,
            ctx.input_option::<T>(&k.bias)?,
            SharedMut::new(ctx.output::<T>(&k.out)?),
        )
    };
    let [rows, cols, terms] = BLOCK;
    let across = n.div_ceil(cols);
    ctx.for_pieces(m.div_ceil(rows) * across, 1, rows.min(m) * cols.min(n) * inner / 4, |task, _| {
        let (i, j) = (task / across * rows, task % across * cols);
        let (height, width) = (rows.min(m - i), cols.min(n - j));
        let mut scratch = ctx.scratch();
        let room = scratch.slice_mut::<T::Compute>(SCRATCH_BYTES / size_of::<T::Compute>());
        let (sums, room) = room.split_at_mut(rows * cols);
        let (a, b) = room.split_at_mut(rows * terms);
        sums.fill(T::Compute::default());
        for p in (0..inner).step_by(terms) {
            let len = terms.min(inner - p);
            for (row, to) in a.chunks_exact_mut(len).take(height).enumerate() {
                to.iter_mut().zip(&x[(i + row) * inner + p..]).for_each(|(to, x)| *to = x.get());
            }
            for (row, to) in b.chunks_exact_mut(len).take(width).enumerate() {
                let from = &weight[(j + row) * inner + p..];
                to.iter_mut().zip(from).for_each(|(to, w)| *to = T::Compute::from_f64(f64::from(*w)));
            }
            let (a, b) = (Mat::new(a.as_ptr(), len, 1), Mat::new(b.as_ptr(), len, 1).transposed());
            let (one, to) = (T::Compute::from_f64(1.0), MatMut::new(sums.as_mut_ptr(), width, 1));
            // SAFETY: the three blocks were just laid out so in this task's scratch.
            unsafe { product([height, width, len], one, a, b, one, to) };
        }
        for (row, sums) in sums.chunks_exact(width).take(height).enumerate() {
            // SAFETY: the block's part of a row is this task's alone.
            let out = unsafe { out.part((i + row) * n + j, width) };
            for (col, (to, sum)) in out.iter_mut().zip(sums).enumerate() {
                let shift = bias.map_or(T::Compute::default(), |bias| bias[j + col].get());
                *to = T::put(*sum * T::Compute::from_f64(f64::from(scales[j + col])) + shift);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::nearest_i8;

    #[test]
    fn the_nearest_integer_is_the_even_one_of_two() {
        for quarters in -508..=508 {
            let x = quarters as f32 / 4.0;
            for x in [x, f32::from_bits(x.to_bits() + 1), f32::from_bits(x.to_bits().saturating_sub(1))] {
                if x.abs() <= 127.0 {
                    assert_eq!(nearest_i8(x), x.round_ties_even() as i8, "{x}");
                }
            }
        }
        assert_eq!([f32::NAN, f32::from_bits(0xffc0_00ab)].map(nearest_i8), [0, 0]);
    }
}
