//! Rotary position embedding by half-rotation.

use memcore::backend::kernel::Rope;
use memcore::error::Result;

use crate::element::{Element, Float, float_type};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Elements per task.
const TASK: usize = 16 << 10;

/// `out[i] = x[i]·cos − x[i + d/2]·sin`, `out[i + d/2] = x[i + d/2]·cos + x[i]·sin`.
pub(crate) fn rope(ctx: &Context<'_>, k: &Rope) -> Result<()> {
    float_type!(k.x.dtype, T => run::<T>(ctx, k), else Ok(()))
}

fn run<T: Float>(ctx: &Context<'_>, k: &Rope) -> Result<()> {
    let [b, t, h, d] = *k.x.dims() else { return Ok(()) };
    if k.x.numel() == 0 {
        return Ok(());
    }
    let x = SharedMut::from_ptr(ctx.ptr::<T>(&k.x)?);
    let out = SharedMut::from_ptr(ctx.ptr::<T>(&k.out)?);
    // SAFETY: not an in-place kernel: no operand aliases the written one.
    let (cos, sin) = unsafe { (ctx.input::<T::Compute>(&k.cos)?, ctx.input::<T::Compute>(&k.sin)?) };
    let (x_strides, out_strides) = (k.x.layout.strides(), k.out.layout.strides());
    let half = d / 2;
    ctx.for_pieces(b * t * h, TASK.div_ceil(d), d, |start, end| {
        for vector in start..end {
            let (batch, position, head) = (vector / h / t, vector / h % t, vector % h);
            let offset = |s: &[usize]| batch * s[0] + position * s[1] + head * s[2];
            let (from, to) = (offset(x_strides), offset(out_strides));
            let (cos, sin) = (&cos[position * half..][..half], &sin[position * half..][..half]);
            if x_strides[3] == 1 && out_strides[3] == 1 {
                // SAFETY: the vector exists, and its place in `out` is this task's alone.
                turn(unsafe { x.view(from, d) }, cos, sin, k.inverse, unsafe { out.part(to, d) });
                continue;
            }
            for i in 0..half {
                let (x_at, x_step) = (from + i * x_strides[3], half * x_strides[3]);
                let (out_at, out_step) = (to + i * out_strides[3], half * out_strides[3]);
                // SAFETY: as above.
                unsafe {
                    let pair = [*x.get().add(x_at), *x.get().add(x_at + x_step)];
                    let [first, second] = turned(pair, cos[i], sin[i], k.inverse);
                    *out.get().add(out_at) = first;
                    *out.get().add(out_at + out_step) = second;
                }
            }
        }
    });
    Ok(())
}

/// Rotates one pair.
#[inline(always)]
fn turned<T: Float>([a, b]: [T; 2], cos: T::Compute, sin: T::Compute, inverse: bool) -> [T; 2] {
    let (a, b) = (a.get(), b.get());
    let sin = if inverse { -sin } else { sin };
    [T::put(a * cos - b * sin), T::put(b * cos + a * sin)]
}

simd! {
    /// Rotates one vector.
    fn turn<T: Float>(x: &[T], cos: &[T::Compute], sin: &[T::Compute], inverse: bool, out: &mut [T]) = turn_body;
}

#[inline(always)]
fn turn_body<S: Isa, T: Float>(
    x: &[T],
    cos: &[<T as Element>::Compute],
    sin: &[<T as Element>::Compute],
    inverse: bool,
    out: &mut [T],
) {
    let half = cos.len();
    let (sin, (a, b)) = (&sin[..half], x.split_at(half));
    let (b, (first, second)) = (&b[..half], out.split_at_mut(half));
    let second = &mut second[..half];
    for i in 0..half {
        [first[i], second[i]] = turned([a[i], b[i]], cos[i], sin[i], inverse);
    }
}
