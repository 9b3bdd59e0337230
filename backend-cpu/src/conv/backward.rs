//! Gradients of the convolution for its input and its weight.

use std::ops::Range;

use memcore::DType;
use memcore::backend::kernel::{Conv2dInputGrad, Conv2dWeightGrad};
use memcore::error::Result;

use super::Sizes;
use super::forward::is_compute;
use super::patches::{gather, scatter};
use crate::element::{Float, Number};
use crate::matmul::product::{Mat, MatMut, product};
use crate::matmul::widened::{narrow, widen_block};
use crate::parallel::SCRATCH_BYTES;
use crate::refusal::unsupported;
use crate::view::{Context, SharedMut};

/// Parts of the batch that have their own sums of the weight gradient, at most.
const PARTS: usize = 16;

/// Runs a [`Conv2dInputGrad`].
pub(crate) fn conv2d_input_grad(ctx: &Context<'_>, call: &Conv2dInputGrad) -> Result<()> {
    match call.out.dtype {
        DType::F64 => input_grad::<f64>(ctx, call),
        DType::F32 => input_grad::<f32>(ctx, call),
        DType::F16 => input_grad::<half::f16>(ctx, call),
        DType::BF16 => input_grad::<half::bf16>(ctx, call),
        _ => unsupported(&call.clone().into()),
    }
}

fn input_grad<T: Float>(ctx: &Context<'_>, call: &Conv2dInputGrad) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.out, &call.weight, &call.grad);
    // SAFETY: core validated the call: `out` shares no byte with the others.
    let (grad, weight, out) = unsafe {
        (ctx.input::<T>(&call.grad)?, ctx.input::<T>(&call.weight)?, SharedMut::new(ctx.output::<T>(&call.out)?))
    };
    let pairs = s.images * s.groups;
    // Enough blocks of channels for a few threads; in 16 bits as many channels as sums of their planes fit the scratch.
    let room = SCRATCH_BYTES / size_of::<T::Compute>() / 4;
    let mut block = s.channels.div_ceil(if pairs == 0 { 1 } else { 8usize.div_ceil(pairs) }).max(1);
    if !is_compute::<T>() {
        block = block.min(room / s.input_pixels().max(1));
    }
    if block == 0 {
        return one_by_one(ctx, &s, grad, weight, out);
    }
    let blocks = s.channels.div_ceil(block);
    let work = s.outputs * s.output_pixels() * s.patch() / blocks.max(1) / 4;
    ctx.for_pieces(pairs * blocks, 1, work, |task, _| {
        let (pair, first) = (task / blocks, task % blocks * block);
        let channels = first..(first + block).min(s.channels);
        let outputs = s.outputs * s.output_pixels();
        let planes = InputPlanes {
            sizes: &s,
            grad: &grad[pair * outputs..][..outputs],
            weight: &weight[pair % s.groups * s.outputs * s.patch()..][..s.outputs * s.patch()],
            channels: channels.clone(),
        };
        let start = (pair * s.channels + first) * s.input_pixels();
        // SAFETY: these planes are this task's alone.
        planes.run(ctx, unsafe { out.part(start, channels.len() * s.input_pixels()) });
    });
    Ok(())
}

/// The gradient of some planes of one group of one image.
struct InputPlanes<'a, T> {
    sizes: &'a Sizes,
    grad: &'a [T],
    weight: &'a [T],
    channels: Range<usize>,
}

impl<T: Float> InputPlanes<'_, T> {
    fn run(&self, ctx: &Context<'_>, out: &mut [T]) {
        let elements = SCRATCH_BYTES / size_of::<T::Compute>();
        let mut scratch = ctx.scratch();
        let (columns, rest) = scratch.slice_mut::<T::Compute>(elements).split_at_mut(elements / 4);
        let (block, rest) = rest.split_at_mut(elements / 4);
        let (grads, sums) = rest.split_at_mut(elements / 4);
        let sums = if is_compute::<T>() {
            // SAFETY: the two types are one.
            unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<T::Compute>(), out.len()) }
        } else {
            &mut sums[..out.len()]
        };
        sums.fill(T::Compute::default());
        self.add(columns, block, grads, sums);
        if !is_compute::<T>() {
            // SAFETY: `sums` is in the scratch here, not in `out`.
            narrow::<T>(unsafe { std::slice::from_raw_parts(sums.as_ptr(), sums.len()) }, out);
        }
    }

    /// Adds the products to `sums`, tile by tile.
    fn add(
        &self,
        columns: &mut [T::Compute],
        block: &mut [T::Compute],
        grads: &mut [T::Compute],
        sums: &mut [T::Compute],
    ) {
        let s = self.sizes;
        let wide = is_compute::<T>();
        let (zero, one) = (T::Compute::default(), <T::Compute as Number>::from_f64(1.0));
        let window = s.window[0] * s.window[1];
        let [step, len] = s.tile(size_of::<T::Compute>());
        let len = len.min(columns.len() / step);
        let rows_all = self.channels.len() * window;
        for start in (0..s.output_pixels()).step_by(len.max(1)) {
            let pixels = start..(start + len).min(s.output_pixels());
            let grad = Mat::new(self.grad[start..].as_ptr(), s.output_pixels(), 1);
            let grad = if wide {
                Mat::new(grad.ptr().cast(), s.output_pixels(), 1)
            } else {
                // SAFETY: these pixels of all outputs exist; a quarter of the scratch is enough (`Sizes::tile`).
                unsafe { widen_block(grad, s.outputs, pixels.len(), grads) }
            };
            for k in (0..rows_all).step_by(step) {
                let rows = k..(k + step).min(rows_all);
                let weights = Mat::new(self.weight[self.channels.start * window + k..].as_ptr(), s.patch(), 1);
                let weights = if wide {
                    Mat::new(weights.ptr().cast(), s.patch(), 1)
                } else {
                    // SAFETY: these columns of the weight exist; the block is large enough.
                    unsafe { widen_block(weights, s.outputs, rows.len(), block) }
                };
                let to = MatMut::new(columns.as_mut_ptr(), pixels.len(), 1);
                // SAFETY: all three lie where they were just made.
                unsafe { product([rows.len(), pixels.len(), s.outputs], one, weights.transposed(), grad, zero, to) };
                scatter(s, sums, rows.clone(), pixels.clone(), &columns[..rows.len() * pixels.len()]);
            }
        }
    }
}

/// The input gradient element by element, for 16-bit planes too large for a sum in the scratch.
fn one_by_one<T: Float>(ctx: &Context<'_>, s: &Sizes, grad: &[T], weight: &[T], out: SharedMut<T>) -> Result<()> {
    let g = s.geometry;
    let source = |at: usize, offset: usize, axis: usize| {
        let shifted = (at + g.padding[axis]).checked_sub(offset * g.dilation[axis])?;
        (shifted.is_multiple_of(g.stride[axis]) && shifted / g.stride[axis] < s.output[axis])
            .then(|| shifted / g.stride[axis])
    };
    let planes = s.images * s.groups * s.channels;
    ctx.for_each(planes, |plane| {
        let (pair, channel) = (plane / s.channels, plane % s.channels);
        // SAFETY: one task a plane.
        let out = unsafe { out.part(plane * s.input_pixels(), s.input_pixels()) };
        for (pixel, to) in out.iter_mut().enumerate() {
            let (y, x) = (pixel / s.input[1], pixel % s.input[1]);
            let mut sum = T::Compute::default();
            for ky in 0..s.window[0] {
                let Some(oy) = source(y, ky, 0) else { continue };
                for kx in 0..s.window[1] {
                    let Some(ox) = source(x, kx, 1) else { continue };
                    for o in 0..s.outputs {
                        let row = (pair % s.groups * s.outputs + o) * s.patch();
                        let w = weight[row + (channel * s.window[0] + ky) * s.window[1] + kx];
                        let g = grad[(pair * s.outputs + o) * s.output_pixels() + oy * s.output[1] + ox];
                        sum = sum.plus(w.get().times(g.get()));
                    }
                }
            }
            *to = <T as crate::element::Element>::put(sum);
        }
    });
    Ok(())
}

/// Runs a [`Conv2dWeightGrad`].
pub(crate) fn conv2d_weight_grad(ctx: &Context<'_>, call: &Conv2dWeightGrad) -> Result<()> {
    match call.out.dtype {
        DType::F64 => weight_grad::<f64>(ctx, call),
        DType::F32 => weight_grad::<f32>(ctx, call),
        DType::F16 => weight_grad::<half::f16>(ctx, call),
        DType::BF16 => weight_grad::<half::bf16>(ctx, call),
        _ => unsupported(&call.clone().into()),
    }
}

fn weight_grad<T: Float>(ctx: &Context<'_>, call: &Conv2dWeightGrad) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.x, &call.out, &call.grad);
    // SAFETY: core validated the call: `out` shares no byte with the others.
    let (x, grad, out) =
        unsafe { (ctx.input::<T>(&call.x)?, ctx.input::<T>(&call.grad)?, ctx.output::<T>(&call.out)?) };
    let pass = WeightPass { sizes: s, x, grad };
    let elements = SCRATCH_BYTES / size_of::<T::Compute>();
    let parts = PARTS.min(s.images).min(elements / out.len().max(1));
    if parts >= 2 || (parts == 1 && s.patch() < 64) {
        pass.by_parts(ctx, parts, out);
    } else {
        pass.by_columns(ctx, out);
    }
    Ok(())
}

struct WeightPass<'a, T> {
    sizes: Sizes,
    x: &'a [T],
    grad: &'a [T],
}

impl<T: Float> WeightPass<'_, T> {
    /// Parts of the batch have sums of their own in the caller's scratch, added up in order.
    fn by_parts(&self, ctx: &Context<'_>, parts: usize, out: &mut [T]) {
        let s = &self.sizes;
        let elements = SCRATCH_BYTES / size_of::<T::Compute>();
        let mut scratch = ctx.scratch();
        let sums = &mut scratch.slice_mut::<T::Compute>(elements)[..parts * out.len()];
        let shared = SharedMut::new(sums);
        let (size, per_group) = (out.len(), s.outputs * s.patch());
        let piece = s.images.div_ceil(parts);
        ctx.for_pieces(parts, 1, piece * s.groups * per_group * s.output_pixels() / 4, |part, _| {
            // SAFETY: one task a part.
            let sums = unsafe { shared.part(part * size, size) };
            sums.fill(T::Compute::default());
            let images = (part * piece).min(s.images)..((part + 1) * piece).min(s.images);
            let mut scratch = ctx.scratch();
            let room = scratch.slice_mut::<T::Compute>(elements);
            for group in 0..s.groups {
                let to = MatMut::new(sums[group * per_group..].as_mut_ptr(), s.patch(), 1);
                // SAFETY: the group's rows of this part's sums.
                unsafe { self.add(room, images.clone(), group, 0..s.patch(), to) };
            }
        });
        for (i, to) in out.iter_mut().enumerate() {
            let total = (1..parts).fold(sums[i], |total, part| total.plus(sums[part * size + i]));
            *to = <T as crate::element::Element>::put(total);
        }
    }

    /// Blocks of columns go over the whole batch, each into its own part of the output.
    fn by_columns(&self, ctx: &Context<'_>, out: &mut [T]) {
        let s = &self.sizes;
        let quarter = SCRATCH_BYTES / size_of::<T::Compute>() / 4;
        let step = s.tile(size_of::<T::Compute>())[0].min(s.patch().div_ceil(8)).max(1);
        let blocks = s.patch().div_ceil(step);
        let shared = SharedMut::new(out);
        let work = s.images * s.outputs * step * s.output_pixels() / 4;
        ctx.for_pieces(s.groups * blocks, 1, work, |task, _| {
            let (group, first) = (task / blocks, task % blocks * step);
            let rows = first..(first + step).min(s.patch());
            let first = group * s.outputs * s.patch() + rows.start;
            // The sums lie beside the tile in this task's scratch, and are rounded once.
            let mut scratch = ctx.scratch();
            let (sums, room) = scratch.slice_mut::<T::Compute>(4 * quarter).split_at_mut(quarter);
            let sums = &mut sums[..s.outputs * rows.len()];
            sums.fill(T::Compute::default());
            let to = MatMut::new(sums.as_mut_ptr(), rows.len(), 1);
            // SAFETY: all of `sums`.
            unsafe { self.add(room, 0..s.images, group, rows.clone(), to) };
            for (o, row) in sums.chunks_exact(rows.len()).enumerate() {
                // SAFETY: these columns of an output's row are this task's alone.
                narrow::<T>(row, unsafe { shared.part(first + o * s.patch(), rows.len()) });
            }
        });
    }
    /// Adds the products over `images` and all pixels for columns `columns` of one group's weight to `to`. `room` holds a tile of patches and one
    /// of the gradient.
    ///
    /// # Safety
    /// `to` has a row for each output and is the caller's alone.
    unsafe fn add(
        &self,
        room: &mut [T::Compute],
        images: Range<usize>,
        group: usize,
        columns: Range<usize>,
        to: MatMut<T::Compute>,
    ) {
        let s = &self.sizes;
        let wide = is_compute::<T>();
        let one = <T::Compute as Number>::from_f64(1.0);
        let [step, len] = s.tile(size_of::<T::Compute>());
        let (tile, grads) = room.split_at_mut(room.len() / 2);
        let len = len.min(tile.len() / step).min((grads.len() / s.outputs.max(1)).max(1));
        for image in images {
            let pair = image * s.groups + group;
            let planes = &self.x[pair * s.channels * s.input_pixels()..][..s.channels * s.input_pixels()];
            let grad = &self.grad[pair * s.outputs * s.output_pixels()..][..s.outputs * s.output_pixels()];
            for start in (0..s.output_pixels()).step_by(len) {
                let pixels = start..(start + len).min(s.output_pixels());
                let grad = Mat::new(grad[start..].as_ptr(), s.output_pixels(), 1);
                let grad = if wide {
                    Mat::new(grad.ptr().cast(), s.output_pixels(), 1)
                } else {
                    // SAFETY: these pixels of all outputs exist; `len` was chosen so that they fit.
                    unsafe { widen_block(grad, s.outputs, pixels.len(), grads) }
                };
                for k in columns.clone().step_by(step) {
                    let rows = k..(k + step).min(columns.end);
                    gather(s, planes, rows.clone(), pixels.clone(), &mut tile[..rows.len() * pixels.len()]);
                    let patches = Mat::new(tile.as_ptr(), pixels.len(), 1).transposed();
                    let to = to.at(0, k - columns.start);
                    // SAFETY: all three lie where they were just made; `to` is the caller's.
                    unsafe { product([s.outputs, rows.len(), pixels.len()], one, grad, patches, one, to) };
                }
            }
        }
    }
}
