//! The loop of every elementwise kernel: elements in row-major order, block by block.
//!
//! A [`Reader`] returns the block `start..start + len` of an operand as a slice in the compute type. The slice is a view of the memory
//! itself if the operand is contiguous and of that type. Otherwise it is a small buffer, filled from any strides and any element type. A
//! [`Writer`] does the same in the other direction. So arithmetic is written once, over contiguous slices of f32, f64 or i64. It costs one
//! extra pass through the first-level cache if an operand is strided, broadcast or 16 bits wide.
//!
//! **In place**: a reader of an operand that shares memory with the output always fills its buffer. A block is read before it is written,
//! and aliases are the very same view, so that the result is right and no two slices alias.

use std::mem::MaybeUninit;

use memcore::backend::Operand;
use memcore::error::Result;
use memcore::{Layout, MAX_RANK};

use crate::element::{Element, Float, Real};
use crate::parallel::{INLINE_ELEMENTS, Plain};
use crate::past_caches::{fence, is_streamed, stream};
use crate::simd::{Isa, simd};
use crate::view::Context;

/// Elements per block: three blocks of f64 and an output fit the first-level cache.
pub(crate) const BLOCK: usize = 1024;

/// Elements per task of a thread.
const TASK: usize = 16 * BLOCK;

/// Calls `f(start, len)` for each block of `0..numel`, on several threads if there are many.
pub(crate) fn for_blocks(ctx: &Context<'_>, numel: usize, f: impl Fn(usize, usize) + Sync + Send) {
    if numel < INLINE_ELEMENTS {
        blocks(0, numel, &f);
    } else {
        ctx.for_each(numel.div_ceil(TASK), |i| blocks(i * TASK, ((i + 1) * TASK).min(numel), &f));
    }
}

fn blocks(start: usize, end: usize, f: &impl Fn(usize, usize)) {
    let mut at = start;
    while at < end {
        let len = BLOCK.min(end - at);
        f(at, len);
        at += len;
    }
    fence();
}

/// Memory for one block, uninitialised.
#[repr(align(64))]
pub(crate) struct Block<C>([MaybeUninit<C>; BLOCK]);

impl<C: Plain + Default> Block<C> {
    /// Makes uninitialised memory.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([MaybeUninit::uninit(); BLOCK])
    }

    /// Returns the first `len` elements, zeroed.
    fn zeroed(&mut self, len: usize) -> &mut [C] {
        let part = &mut self.0[..len];
        part.fill(MaybeUninit::new(C::default()));
        // SAFETY: just initialised.
        unsafe { &mut *(part as *mut [MaybeUninit<C>] as *mut [C]) }
    }
}

/// A layout in as few dimensions as possible, visited as runs of its innermost dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    rank: usize,
    dims: [usize; MAX_RANK],
    strides: [usize; MAX_RANK],
}

impl Runs {
    /// Joins neighbouring dimensions if one stride describes both.
    pub(crate) fn new(layout: &Layout) -> Self {
        let mut runs = Self { rank: 0, dims: [1; MAX_RANK], strides: [0; MAX_RANK] };
        for (&d, &s) in layout.dims().iter().zip(layout.strides()) {
            if d == 1 {
                continue;
            }
            if runs.rank > 0 && runs.strides[runs.rank - 1] == s * d {
                runs.dims[runs.rank - 1] *= d;
                runs.strides[runs.rank - 1] = s;
            } else {
                runs.dims[runs.rank] = d;
                runs.strides[runs.rank] = s;
                runs.rank += 1;
            }
        }
        if runs.rank == 0 {
            runs.rank = 1;
        }
        runs
    }

    /// True if all elements are contiguous.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.rank == 1 && (self.strides[0] == 1 || self.dims[0] <= 1)
    }

    /// Calls `f(offset, stride, done, n)` for each run of the elements `start..start + len`: `n` elements from `offset` on, `stride` apart.
    /// The first of them is number `done` of the block.
    #[inline(always)]
    pub(crate) fn for_each(&self, start: usize, len: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
        let last = self.rank - 1;
        let mut index = [0; MAX_RANK];
        let (mut rest, mut offset) = (start, 0);
        for i in (0..self.rank).rev() {
            index[i] = if i == 0 { rest } else { rest % self.dims[i] };
            rest /= self.dims[i].max(1);
            offset += index[i] * self.strides[i];
        }
        let mut done = 0;
        loop {
            let n = (self.dims[last] - index[last]).min(len - done);
            f(offset, self.strides[last], done, n);
            done += n;
            if done >= len {
                return;
            }
            // The next run starts where the innermost dimension is 0 and the next outer one has advanced.
            offset -= index[last] * self.strides[last];
            index[last] = 0;
            for i in (0..last).rev() {
                index[i] += 1;
                offset += self.strides[i];
                if index[i] < self.dims[i] {
                    break;
                }
                offset -= index[i] * self.strides[i];
                index[i] = 0;
            }
        }
    }
}

/// Fills `out` with the converted elements at `src`, which are `stride` apart.
type Load<C> = unsafe fn(src: *const u8, offset: usize, stride: usize, out: &mut [MaybeUninit<C>]);
/// Stores the converted `values` at `out`, `stride` apart.
pub(crate) type Store<C> = unsafe fn(out: *mut u8, offset: usize, stride: usize, values: &[C]);

/// An operand that is read in blocks of `C`.
pub(crate) struct Reader<C> {
    base: *const u8,
    runs: Runs,
    load: Load<C>,
    direct: bool,
}

// SAFETY: only an address of device memory, which reads on several threads may share.
unsafe impl<C> Sync for Reader<C> {}
// SAFETY: as above.
unsafe impl<C> Send for Reader<C> {}

impl<C: Plain> Reader<C> {
    /// Makes a reader of `operand`, whose elements are `T`, while `out` is written.
    pub(crate) fn typed<T: Element<Compute = C>>(ctx: &Context<'_>, operand: &Operand, out: &Operand) -> Result<Self> {
        let same_type = std::any::TypeId::of::<T>() == std::any::TypeId::of::<C>();
        Ok(Self::new(ctx.ptr::<T>(operand)?.cast(), operand, out, load::<T>, same_type))
    }

    /// Makes a reader of the bits of `operand`, whose elements are as large as `C`.
    pub(crate) fn bits(ctx: &Context<'_>, operand: &Operand, out: &Operand) -> Result<Self> {
        debug_assert_eq!(operand.dtype.size(), size_of::<C>() as u64);
        Ok(Self::new(ctx.bytes(operand)?, operand, out, load_bits::<C>, true))
    }

    /// Makes a reader of `operand` with a conversion to `C`.
    pub(crate) fn with(ctx: &Context<'_>, operand: &Operand, out: &Operand, load: Load<C>) -> Result<Self> {
        Ok(Self::new(ctx.bytes(operand)?, operand, out, load, false))
    }

    fn new(base: *const u8, operand: &Operand, out: &Operand, load: Load<C>, same_type: bool) -> Self {
        let runs = Runs::new(&operand.layout);
        let direct = same_type && runs.is_contiguous() && !Context::aliases(operand, out);
        Self { base, runs, load, direct }
    }

    /// Returns elements `start..start + len`, `len` ≤ [`BLOCK`].
    ///
    /// # Safety
    /// They exist, the context that made this lives, and nobody writes them meanwhile, except through the same view when the
    /// operand aliases the output.
    #[inline(always)]
    pub(crate) unsafe fn read<'a>(&self, start: usize, len: usize, buffer: &'a mut Block<C>) -> &'a [C] {
        if self.direct {
            // SAFETY: contiguous elements of type C; the caller asserts the rest.
            return unsafe { std::slice::from_raw_parts(self.base.cast::<C>().add(start), len) };
        }
        let out = &mut buffer.0[..len];
        self.runs.for_each(start, len, |offset, stride, done, n| {
            // SAFETY: the runs of a checked layout lie in bounds, and the base is of the type that `load` reads.
            unsafe { (self.load)(self.base, offset, stride, &mut out[done..done + n]) };
        });
        // SAFETY: the runs covered all of it.
        unsafe { &*(out as *const [MaybeUninit<C>] as *const [C]) }
    }
}

/// An operand that is written in blocks of `C`.
pub(crate) struct Writer<C> {
    base: *mut u8,
    runs: Runs,
    store: Store<C>,
    direct: bool,
    /// True if the writer is direct, and the operand too large for the caches.
    streamed: bool,
}

// SAFETY: only an address of device memory; tasks write disjoint blocks.
unsafe impl<C> Sync for Writer<C> {}
// SAFETY: as above.
unsafe impl<C> Send for Writer<C> {}

impl<C: Plain + Default> Writer<C> {
    /// Makes a writer of `operand`, whose elements are `T`.
    pub(crate) fn typed<T: Element<Compute = C>>(ctx: &Context<'_>, operand: &Operand) -> Result<Self> {
        let same_type = std::any::TypeId::of::<T>() == std::any::TypeId::of::<C>();
        Ok(Self::new(ctx.ptr::<T>(operand)?.cast(), operand, store::<T>, same_type))
    }

    /// Makes a writer of the bits of `operand`, whose elements are as large as `C`.
    pub(crate) fn bits(ctx: &Context<'_>, operand: &Operand) -> Result<Self> {
        debug_assert_eq!(operand.dtype.size(), size_of::<C>() as u64);
        Ok(Self::new(ctx.bytes(operand)?, operand, store_bits::<C>, true))
    }

    /// Makes a writer of `operand` with a conversion from `C`.
    pub(crate) fn with(ctx: &Context<'_>, operand: &Operand, store: Store<C>) -> Result<Self> {
        Ok(Self::new(ctx.bytes(operand)?, operand, store, false))
    }

    fn new(base: *mut u8, operand: &Operand, store: Store<C>, same_type: bool) -> Self {
        let runs = Runs::new(&operand.layout);
        Self { base, runs, store, direct: same_type && runs.is_contiguous(), streamed: false }
    }

    /// Returns the same writer, which writes past the caches if `out`, its operand, is too large for them and is not one of `inputs`, whose lines are
    /// in the caches already. Use it only in loops over [`for_blocks`], whose blocks begin at cache lines.
    pub(crate) fn streamed(self, inputs: &[&Operand], out: &Operand) -> Self {
        let apart = inputs.iter().all(|input| !Context::aliases(input, out));
        let streamed = self.direct && apart && is_streamed(self.base.cast::<C>(), out.numel(), BLOCK);
        Self { streamed, ..self }
    }

    /// True if `f` in [`Writer::write`] writes the memory itself, and finds the earlier contents there.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct && !self.streamed
    }

    /// Lets `f` write elements `start..start + len`, `len` ≤ [`BLOCK`]. `f` finds garbage there, unless [`Writer::is_direct`].
    ///
    /// # Safety
    /// They exist, the context that made this lives, and no one else reads or writes them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, start: usize, len: usize, buffer: &mut Block<C>, f: impl FnOnce(&mut [C])) {
        if self.streamed {
            let values = buffer.zeroed(len);
            f(values);
            // SAFETY: contiguous elements of type C; the caller asserts the rest.
            return unsafe { stream(values, self.base.cast::<C>().add(start)) };
        }
        if self.direct {
            // SAFETY: contiguous elements of type C; the caller asserts the rest.
            return f(unsafe { std::slice::from_raw_parts_mut(self.base.cast::<C>().add(start), len) });
        }
        let values = buffer.zeroed(len);
        f(values);
        self.runs.for_each(start, len, |offset, stride, done, n| {
            // SAFETY: the runs of a checked layout lie in bounds, and the base is of the type that `store` writes.
            unsafe { (self.store)(self.base, offset, stride, &values[done..done + n]) };
        });
    }
}

impl<C: Plain + Default> Writer<C> {
    /// Writes the elements that `src` reads at `start..start + len`, with one pass less than [`Writer::write`].
    ///
    /// # Safety
    /// As there, for both.
    #[inline(always)]
    pub(crate) unsafe fn copy(&self, start: usize, len: usize, src: &Reader<C>, buffer: &mut Block<C>) {
        if self.streamed {
            // SAFETY: passed on to the caller.
            return unsafe { stream(src.read(start, len, buffer), self.base.cast::<C>().add(start)) };
        }
        if self.direct {
            // SAFETY: contiguous elements of type C; writing them as if uninitialised is sound for plain numbers.
            let out = unsafe { std::slice::from_raw_parts_mut(self.base.cast::<MaybeUninit<C>>().add(start), len) };
            src.runs.for_each(start, len, |offset, stride, done, n| {
                // SAFETY: the runs of a checked layout lie in bounds, and the base is of the type that `load` reads.
                unsafe { (src.load)(src.base, offset, stride, &mut out[done..done + n]) };
            });
            return;
        }
        // SAFETY: passed on to the caller.
        let values = unsafe { src.read(start, len, buffer) };
        self.runs.for_each(start, len, |offset, stride, done, n| {
            // SAFETY: as above, for `store`.
            unsafe { (self.store)(self.base, offset, stride, &values[done..done + n]) };
        });
    }
}

simd! {
    /// Converts elements to the compute type.
    pub(crate) fn convert_in<T: Element>(src: &[T], out: &mut [MaybeUninit<T::Compute>]) = convert_in_body;
    /// Converts elements from the compute type, rounded.
    pub(crate) fn convert_out<T: Element>(values: &[T::Compute], out: &mut [T]) = convert_out_body;
}

#[inline(always)]
fn convert_in_body<S: Isa, T: Element>(src: &[T], out: &mut [MaybeUninit<T::Compute>]) {
    T::get_all::<S>(src, out);
}

#[inline(always)]
fn convert_out_body<S: Isa, T: Element>(values: &[T::Compute], out: &mut [T]) {
    T::put_all::<S>(values, out);
}

/// [`Load`] of `T`.
///
/// # Safety
/// `src` is an aligned array of `T` that holds the run.
unsafe fn load<T: Element>(src: *const u8, offset: usize, stride: usize, out: &mut [MaybeUninit<T::Compute>]) {
    // SAFETY: the caller asserts bounds and alignment.
    unsafe {
        let src = src.cast::<T>().add(offset);
        match stride {
            1 => convert_in(std::slice::from_raw_parts(src, out.len()), out),
            0 => out.fill(MaybeUninit::new((*src).get())),
            _ => out.iter_mut().enumerate().for_each(|(i, o)| {
                o.write((*src.add(i * stride)).get());
            }),
        }
    }
}

/// [`Load`] of floats of type `T` into f64.
///
/// # Safety
/// `src` is an aligned array of `T` that holds the run.
pub(crate) unsafe fn load_f64<T: Float>(src: *const u8, offset: usize, stride: usize, out: &mut [MaybeUninit<f64>]) {
    for (i, o) in out.iter_mut().enumerate() {
        // SAFETY: the caller asserts bounds and alignment.
        o.write(unsafe { *src.cast::<T>().add(offset + i * stride) }.get().to_f64());
    }
}

/// [`Store`] of `T`.
///
/// # Safety
/// `out` is an aligned array of `T` that holds the run.
unsafe fn store<T: Element>(out: *mut u8, offset: usize, stride: usize, values: &[T::Compute]) {
    // SAFETY: the caller asserts bounds and alignment.
    unsafe {
        let out = out.cast::<T>().add(offset);
        if stride == 1 {
            convert_out(values, std::slice::from_raw_parts_mut(out, values.len()));
        } else {
            values.iter().enumerate().for_each(|(i, &x)| *out.add(i * stride) = T::put(x));
        }
    }
}

/// [`Load`] without conversion.
///
/// # Safety
/// `src` is an aligned array of `C` that holds the run.
unsafe fn load_bits<C: Plain>(src: *const u8, offset: usize, stride: usize, out: &mut [MaybeUninit<C>]) {
    // SAFETY: the caller asserts bounds and alignment.
    unsafe {
        let src = src.cast::<C>().add(offset);
        match stride {
            1 => std::ptr::copy_nonoverlapping(src, out.as_mut_ptr().cast(), out.len()),
            0 => out.fill(MaybeUninit::new(*src)),
            _ => out.iter_mut().enumerate().for_each(|(i, o)| {
                o.write(*src.add(i * stride));
            }),
        }
    }
}

/// [`Store`] without conversion.
///
/// # Safety
/// `out` is an aligned array of `C` that holds the run.
unsafe fn store_bits<C: Plain>(out: *mut u8, offset: usize, stride: usize, values: &[C]) {
    // SAFETY: the caller asserts bounds and alignment.
    unsafe {
        let out = out.cast::<C>().add(offset);
        if stride == 1 {
            std::ptr::copy_nonoverlapping(values.as_ptr(), out, values.len());
        } else {
            values.iter().enumerate().for_each(|(i, &x)| *out.add(i * stride) = x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_visit_row_major_order_from_any_start() {
        let layouts = [
            Layout::contiguous(&[2, 3, 4]).unwrap(),
            Layout::contiguous(&[4, 3, 2]).unwrap().transposed(0, 2),
            Layout::contiguous(&[3, 1]).unwrap().broadcast_to(&[2, 3, 5]).unwrap(),
            Layout::scalar(),
            Layout::contiguous(&[1, 7, 1]).unwrap(),
            Layout::strided(&[2, 2, 3], &[100, 10, 2]).unwrap(),
        ];
        for layout in layouts {
            let mut want = vec![0];
            for (&d, &s) in layout.dims().iter().zip(layout.strides()) {
                want = want.iter().flat_map(|&o| (0..d).map(move |i| o + i * s)).collect();
            }
            let runs = Runs::new(&layout);
            for start in 0..want.len() {
                for len in 1..=want.len() - start {
                    let mut got = Vec::new();
                    runs.for_each(start, len, |offset, stride, done, n| {
                        assert_eq!(done, got.len());
                        got.extend((0..n).map(|i| offset + i * stride));
                    });
                    assert_eq!(got, want[start..start + len], "{layout:?} from {start}");
                }
            }
        }
    }

    #[test]
    fn neighbouring_dimensions_are_joined() {
        assert!(Runs::new(&Layout::contiguous(&[2, 3, 4]).unwrap()).is_contiguous());
        let bias = Layout::contiguous(&[4]).unwrap().broadcast_to(&[2, 3, 4]).unwrap();
        let runs = Runs::new(&bias);
        assert_eq!((runs.rank, &runs.dims[..2], &runs.strides[..2]), (2, &[6, 4][..], &[0, 1][..]));
    }
}
