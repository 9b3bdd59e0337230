//! Rows in the type in which they are computed: the memory itself, or a copy that is converted once.

use std::any::TypeId;
use std::mem::MaybeUninit;

use crate::element::Float;
use crate::parallel::{Plain, SCRATCH_BYTES, Scratch};
use crate::past_caches::{is_streamed, stream};
use crate::stream::{convert_in, convert_out};
use crate::view::Context;

/// Memory for copies of rows: the thread's scratch, or memory of its own for rows that do not fit there.
pub(super) struct Rooms<'a, R> {
    scratch: Scratch<'a>,
    own: Vec<R>,
}

impl<'a, R: Plain + Default> Rooms<'a, R> {
    pub(super) fn new(ctx: &'a Context<'_>) -> Self {
        Self { scratch: ctx.scratch(), own: Vec::new() }
    }

    /// Returns room for `len` numbers, which are garbage.
    pub(super) fn room(&mut self, len: usize) -> &mut [R] {
        if len * size_of::<R>() <= SCRATCH_BYTES {
            return self.scratch.slice_mut(len);
        }
        self.own = vec![R::default(); len];
        &mut self.own
    }
}

/// Cuts a room into pieces of `len` numbers; they are empty if it is.
pub(super) fn cut<R, const N: usize>(room: &mut [R], len: usize) -> [&mut [R]; N] {
    let mut parts = room.chunks_mut(len.max(1));
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// The most rooms of a row's size that a kernel needs.
const MOST_COPIES: usize = 6;

/// How the rows of a result are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    /// Computed where they lie.
    InPlace,
    /// Computed elsewhere, and written past the caches.
    Streamed,
    /// Computed in another type, and rounded.
    Rounded,
}

impl Writing {
    /// How rows of `n` elements, which are computed in the compute type, are written to `out`; `rows` of them.
    pub(super) fn over<T: Float>(out: *const T, sizes: [usize; 2]) -> Self {
        match TypeId::of::<T>() == TypeId::of::<T::Compute>() {
            false => Self::Rounded,
            true => Self::in_type(out, sizes),
        }
    }

    /// How rows that are computed in their own type are written. 16-bit rows always lie in place: it is the arithmetic that takes their time, and past
    /// the caches they were slower.
    pub(super) fn in_type<T: Float>(out: *const T, [rows, n]: [usize; 2]) -> Self {
        let whole = TypeId::of::<T>() == TypeId::of::<T::Compute>();
        // A row lies in the scratch first.
        if whole && n * MOST_COPIES * size_of::<T>() <= SCRATCH_BYTES && is_streamed(out, rows * n, n) {
            Self::Streamed
        } else {
            Self::InPlace
        }
    }

    /// Elements of a copy of `n` elements, if one is needed.
    pub(super) fn room(self, n: usize) -> usize {
        if self == Self::InPlace { 0 } else { n }
    }

    /// Cuts rows into those that are computed at once: all of them where they lie, each by itself otherwise.
    pub(super) fn at_once(self, start: usize, end: usize) -> impl Iterator<Item = (usize, usize)> {
        let step = if self == Self::InPlace { (end - start).max(1) } else { 1 };
        (start..end).step_by(step).map(move |first| (first, (first + step).min(end)))
    }

    /// Lets `f` compute rows that are computed at once. It finds garbage there.
    #[inline(always)]
    pub(super) fn row<T: Float>(self, out: &mut [T], room: &mut [T::Compute], f: impl FnOnce(&mut [T::Compute])) {
        if self == Self::Rounded {
            f(room);
            return convert_out(room, out);
        }
        // SAFETY: the same type.
        let out = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<T::Compute>(), out.len()) };
        self.row_in_type(out, room, f);
    }

    /// As [`Writing::row`], for rows that are computed in their own type.
    #[inline(always)]
    pub(super) fn row_in_type<C: Copy>(self, out: &mut [C], room: &mut [C], f: impl FnOnce(&mut [C])) {
        if self != Self::Streamed {
            return f(out);
        }
        f(room);
        // SAFETY: as long; rows begin at cache lines, as `is_streamed` found.
        unsafe { stream(room, out.as_mut_ptr()) };
    }
}

/// Returns `x` in the compute type: itself, or a copy in `room`.
#[inline(always)]
pub(super) fn wide<'a, T: Float>(x: &'a [T], room: &'a mut [T::Compute]) -> &'a [T::Compute] {
    if TypeId::of::<T>() == TypeId::of::<T::Compute>() {
        // SAFETY: the same type.
        return unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len()) };
    }
    // SAFETY: numbers may be written as if they were not there yet.
    convert_in(x, unsafe { &mut *(room as *mut [T::Compute] as *mut [MaybeUninit<T::Compute>]) });
    room
}
