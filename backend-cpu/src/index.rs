//! Gathers rows of a table by index, and scatters them back.

use memcore::DType;
use memcore::backend::kernel::{Gather, ScatterAdd};
use memcore::error::Result;

use crate::element::{Float, Number, float_type};
use crate::parallel::{Plain, SCRATCH_BYTES};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// `out[i] = table[indices[i]]`. Rows move as bytes of any type.
pub(crate) fn gather(ctx: &Context<'_>, k: &Gather) -> Result<()> {
    let [rows, n] = *k.table.dims() else { return Ok(()) };
    let row_bytes = n * k.table.dtype.size() as usize;
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let indices = unsafe { ctx.input::<i64>(&k.indices)? };
    let table = SharedMut::from_ptr(ctx.bytes(&k.table)?);
    let out = SharedMut::from_ptr(ctx.bytes(&k.out)?);
    // Distances in bytes between rows, and between elements of a row.
    let size = k.table.dtype.size() as usize;
    let [row_step, step] = [0, 1].map(|axis| k.table.layout.strides()[axis] * size);
    let together = step == size || n == 1;
    ctx.for_pieces(indices.len(), (16usize << 10).div_ceil(n.max(1)), n, |start, end| {
        for (i, &row) in (start..end).zip(&indices[start..end]) {
            // SAFETY: row `i` of `out` is this task's alone.
            let to = unsafe { out.part(i * row_bytes, row_bytes) };
            match usize::try_from(row) {
                Ok(row) if row < rows && together => {
                    // SAFETY: row `row` of `table`, which nobody writes.
                    to.copy_from_slice(unsafe { table.view(row * row_step, row_bytes) });
                }
                Ok(row) if row < rows => {
                    for (j, to) in to.chunks_exact_mut(size).enumerate() {
                        // SAFETY: an element of `table`, which nobody writes.
                        to.copy_from_slice(unsafe { table.view(row * row_step + j * step, size) });
                    }
                }
                _ => missing(k.out.dtype, to),
            }
        }
    });
    Ok(())
}

/// Fills a row whose index is outside the table: NaN, or 0 for integers.
fn missing(dtype: DType, row: &mut [u8]) {
    let pattern: &[u8] = match dtype {
        DType::F64 => &f64::NAN.to_ne_bytes(),
        DType::F32 => &f32::NAN.to_ne_bytes(),
        DType::F16 => &half::f16::NAN.to_ne_bytes(),
        DType::BF16 => &half::bf16::NAN.to_ne_bytes(),
        _ => &[0],
    };
    for (i, byte) in row.iter_mut().enumerate() {
        *byte = pattern[i % pattern.len()];
    }
}

/// `out[r] += src[i]` for each `i` with `indices[i] = r`, in the order of `i`.
pub(crate) fn scatter_add(ctx: &Context<'_>, k: &ScatterAdd) -> Result<()> {
    float_type!(k.out.dtype, T => scatter::<T>(ctx, k), else Ok(()))
}

/// Tasks own ranges of `out`'s rows (and of columns, if a row is huge) and read all indices, so that the order of additions does not depend
/// on threads. 16-bit rows are summed in f32, in the task's scratch.
fn scatter<T: Float + Plain>(ctx: &Context<'_>, k: &ScatterAdd) -> Result<()> {
    let [rows, n] = *k.out.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and `out` is taken once.
    let (indices, out) = unsafe { (ctx.input::<i64>(&k.indices)?, ctx.output::<T>(&k.out)?) };
    let src = SharedMut::from_ptr(ctx.ptr::<T>(&k.src)?);
    let [row_step, step] = [0, 1].map(|axis| k.src.layout.strides()[axis]);
    if rows == 0 || n == 0 {
        return Ok(());
    }
    let capacity = SCRATCH_BYTES / size_of::<T::Compute>();
    let columns = n.min(capacity);
    // Few enough tasks that reading all indices costs little, and small enough that the rows fit the scratch.
    let rows_each = rows.div_ceil(16).max((4usize << 10).div_ceil(columns)).min(capacity / columns);
    let (row_tasks, column_tasks) = (rows.div_ceil(rows_each), n.div_ceil(columns));
    let out = SharedMut::new(out);
    ctx.for_pieces(row_tasks * column_tasks, 1, rows_each * columns + indices.len(), |task, _| {
        let (top, left) = (task / column_tasks * rows_each, task % column_tasks * columns);
        let (bottom, right) = ((top + rows_each).min(rows), (left + columns).min(n));
        let width = right - left;
        let mut scratch = ctx.scratch();
        // SAFETY: tasks own disjoint rows and columns of `out`.
        let out_row = |r: usize| unsafe { out.part(r * n + left, width) };
        let same_type = std::any::TypeId::of::<T>() == std::any::TypeId::of::<T::Compute>();
        let (sums, stride) = if same_type {
            (SharedMut::from_ptr(out.get().wrapping_add(top * n + left).cast::<T::Compute>()), n)
        } else {
            (SharedMut::new(scratch.slice_mut::<T::Compute>((bottom - top) * width)), width)
        };
        // SAFETY: the same rows when the types are the same, rows of the scratch otherwise; one is borrowed at a time.
        let sum_row = |r: usize| unsafe { sums.part((r - top) * stride, width) };
        for r in top..bottom {
            if !k.accumulate {
                sum_row(r).fill(T::Compute::default());
            } else if !same_type {
                convert_row(out_row(r), sum_row(r));
            }
        }
        for (i, &r) in indices.iter().enumerate() {
            if k.padding_index != Some(r) && (top as i64..bottom as i64).contains(&r) {
                let (first, sums) = (i * row_step + left * step, sum_row(r as usize));
                if step == 1 {
                    // SAFETY: a row of `src`, which nobody writes.
                    add_row(unsafe { src.view(first, width) }, sums);
                } else {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: an element of `src`, which nobody writes.
                        *sum = sum.plus(unsafe { src.view(first + j * step, 1) }[0].get());
                    }
                }
            }
        }
        if !same_type {
            for r in top..bottom {
                round_row(sum_row(r), out_row(r));
            }
        }
    });
    Ok(())
}

simd! {
    fn add_row<T: Float>(src: &[T], sums: &mut [T::Compute]) = add_row_body;
    fn convert_row<T: Float>(src: &[T], out: &mut [T::Compute]) = convert_row_body;
    fn round_row<T: Float>(src: &[T::Compute], out: &mut [T]) = round_row_body;
}

#[inline(always)]
fn add_row_body<S: Isa, T: Float>(src: &[T], sums: &mut [T::Compute]) {
    for (s, x) in sums.iter_mut().zip(src) {
        *s = s.plus(x.get());
    }
}

#[inline(always)]
fn convert_row_body<S: Isa, T: Float>(src: &[T], out: &mut [T::Compute]) {
    for (o, x) in out.iter_mut().zip(src) {
        *o = x.get();
    }
}

#[inline(always)]
fn round_row_body<S: Isa, T: Float>(src: &[T::Compute], out: &mut [T]) {
    for (o, &x) in out.iter_mut().zip(src) {
        *o = T::put(x);
    }
}
