//! The convolution itself.

use memcore::DType;
use memcore::backend::kernel::Conv2d;
use memcore::error::Result;

use super::Sizes;
use super::patches::gather;
use crate::element::{Element, Float};
use crate::matmul::product::{Mat, MatMut, product};
use crate::matmul::widened::{narrow, widen_block};
use crate::parallel::SCRATCH_BYTES;
use crate::refusal::unsupported;
use crate::view::{Context, SharedMut};

/// Runs a [`Conv2d`].
pub(crate) fn conv2d(ctx: &Context<'_>, call: &Conv2d) -> Result<()> {
    match call.out.dtype {
        DType::F64 => forward::<f64>(ctx, call),
        DType::F32 => forward::<f32>(ctx, call),
        DType::F16 => forward::<half::f16>(ctx, call),
        DType::BF16 => forward::<half::bf16>(ctx, call),
        _ => unsupported(&call.clone().into()),
    }
}

fn forward<T: Float>(ctx: &Context<'_>, call: &Conv2d) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.x, &call.weight, &call.out);
    // SAFETY: core validated the call: `out` shares no byte with the others.
    let (x, weight, bias, out) = unsafe {
        (
            ctx.input::<T>(&call.x)?,
            ctx.input::<T>(&call.weight)?,
            ctx.input_option::<T>(&call.bias)?,
            SharedMut::new(ctx.output::<T>(&call.out)?),
        )
    };
    let [_, pixels] = s.tile(size_of::<T::Compute>());
    let tiles = s.output_pixels().div_ceil(pixels);
    ctx.for_pieces(s.images * s.groups * tiles, 1, s.outputs * pixels * s.patch() / 4, |task, _| {
        let (image, group, start) = (task / tiles / s.groups, task / tiles % s.groups, task % tiles * pixels);
        let end = (start + pixels).min(s.output_pixels());
        let planes = &x[(image * s.groups + group) * s.channels * s.input_pixels()..][..s.channels * s.input_pixels()];
        let tile = Tile {
            sizes: &s,
            planes,
            weight: &weight[group * s.outputs * s.patch()..][..s.outputs * s.patch()],
            bias: bias.map(|b| &b[group * s.outputs..][..s.outputs]),
            start,
            end,
        };
        let first = (image * s.groups + group) * s.outputs * s.output_pixels() + start;
        // SAFETY: the tile's part of the output begins there and is this task's alone.
        unsafe { tile.run(ctx, out.get().add(first)) };
    });
    Ok(())
}

/// Pixels `start..end` of all outputs of one group of one image.
struct Tile<'a, T> {
    sizes: &'a Sizes,
    planes: &'a [T],
    weight: &'a [T],
    bias: Option<&'a [T]>,
    start: usize,
    end: usize,
}

impl<T: Float> Tile<'_, T> {
    /// # Safety
    /// `out` is the address of the first output's pixel `start`; the tile's pixels of all outputs are the caller's alone.
    unsafe fn run(&self, ctx: &Context<'_>, out: *mut T) {
        let s = self.sizes;
        let (len, patch, pixels) = (self.end - self.start, s.patch(), s.output_pixels());
        let elements = SCRATCH_BYTES / size_of::<T::Compute>();
        let mut scratch = ctx.scratch();
        let (columns, rest) = scratch.slice_mut::<T::Compute>(elements).split_at_mut(elements / 2);
        let (block, sums) = rest.split_at_mut(elements / 4);
        let wide = is_compute::<T>();
        let sums = if wide {
            MatMut::new(out.cast::<T::Compute>(), pixels, 1)
        } else {
            MatMut::new(sums.as_mut_ptr(), len, 1)
        };
        for o in 0..s.outputs {
            let value = self.bias.map_or(T::Compute::default(), |bias| bias[o].get());
            // SAFETY: a row of the tile, in the output or the scratch.
            unsafe { std::slice::from_raw_parts_mut(sums.at(o, 0).ptr(), len) }.fill(value);
        }
        let step = s.tile(size_of::<T::Compute>())[0];
        for k in (0..patch).step_by(step) {
            let rows = k..(k + step).min(patch);
            let weights = Mat::new(self.weight[k..].as_ptr(), patch, 1);
            let weights = if wide {
                Mat::new(weights.ptr().cast(), patch, 1)
            } else {
                // SAFETY: these columns of the weight exist; the block is large enough (`Sizes::tile`).
                unsafe { widen_block(weights, s.outputs, rows.len(), block) }
            };
            let patches = if wide && s.is_pointwise() {
                Mat::new(self.planes[k * s.input_pixels() + self.start..].as_ptr().cast(), s.input_pixels(), 1)
            } else {
                gather(s, self.planes, rows.clone(), self.start..self.end, &mut columns[..rows.len() * len]);
                Mat::new(columns.as_ptr(), len, 1)
            };
            let one = <T::Compute as crate::element::Number>::from_f64(1.0);
            // SAFETY: all three lie where they were just made.
            unsafe { product([s.outputs, len, rows.len()], one, weights, patches, one, sums) };
        }
        if !wide {
            for o in 0..s.outputs {
                // SAFETY: a row of the sums, and the tile's row of the output.
                unsafe {
                    let from = std::slice::from_raw_parts(sums.at(o, 0).ptr(), len);
                    narrow::<T>(from, std::slice::from_raw_parts_mut(out.add(o * pixels), len));
                }
            }
        }
    }
}

/// Whether a type is its own compute type, so that operands are used where they lie.
pub(super) fn is_compute<T: Element>() -> bool {
    std::any::TypeId::of::<T>() == std::any::TypeId::of::<T::Compute>()
}
