//! Extrema over one axis, with their positions.

use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::error::Result;

use crate::element::{Element, Number};
use crate::stream::Runs;
use crate::view::{Context, SharedMut};

pub(super) fn reduce<T: Element>(ctx: &Context<'_>, k: &Reduce) -> Result<()> {
    let Some(indices) = &k.indices else { return Ok(()) };
    let axis = k.axes.trailing_zeros() as usize;
    let (count, stride) = (k.x.dims()[axis], k.x.layout.strides()[axis]);
    // Groups are visited in the order of `indices`: over `x` with the reduced axis narrowed to its first element.
    let (groups, _) = k.x.layout.narrowed(axis, 0, 1);
    let (from, to) = (Runs::new(&groups), Runs::new(&k.out.layout));
    let (x, out) = (SharedMut::from_ptr(ctx.ptr::<T>(&k.x)?), SharedMut::from_ptr(ctx.ptr::<T>(&k.out)?));
    let indices = SharedMut::from_ptr(ctx.ptr::<i64>(indices)?);
    ctx.for_pieces(groups.numel(), (16usize << 10).div_ceil(count.max(1)), count, |start, end| {
        for group in start..end {
            let (mut source, mut target) = (0, 0);
            from.for_each(group, 1, |offset, _, _, _| source = offset);
            to.for_each(group, 1, |offset, _, _, _| target = offset);
            // SAFETY: the offsets of checked layouts; each group writes its own results.
            unsafe {
                let (value, at) = first_extremum(k.op, x.get().add(source), stride, count);
                *out.get().add(target) = value;
                *indices.get().add(group) = at as i64;
            }
        }
    });
    Ok(())
}

/// Returns the first extremum and its position, or the first NaN if there is one.
///
/// # Safety
/// `count` ≥ 1 elements from `x` on, `stride` apart, lie in bounds.
unsafe fn first_extremum<T: Element>(op: ReduceOp, x: *const T, stride: usize, count: usize) -> (T, usize) {
    // SAFETY: passed on to the caller.
    let at = |i: usize| unsafe { *x.add(i * stride) };
    let (mut best, mut place) = (at(0).get(), 0);
    for i in 1..count {
        let x = at(i).get();
        let better = if op == ReduceOp::Min { x < best } else { x > best };
        if !best.is_nan() && (x.is_nan() || better) {
            (best, place) = (x, i);
        }
    }
    (at(place), place)
}
