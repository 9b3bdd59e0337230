//! Fill and copy, for any strides and any pair of types.

use half::{bf16, f16};
use memcore::backend::Operand;
use memcore::backend::kernel::{Copy, Fill};
use memcore::error::Result;
use memcore::{DType, MAX_RANK};

use super::{Bits, bits_type, scalar_bits};
use crate::element::{Element, Number};
use crate::stream::{BLOCK, Block, Reader, Runs, Store, Writer, for_blocks};
use crate::view::{Context, SharedMut};

/// `out = value`.
pub(crate) fn fill(ctx: &Context<'_>, k: &Fill) -> Result<()> {
    bits_type!(k.out.dtype, U => run_fill(ctx, k, U::low(scalar_bits(k.out.dtype, k.value))))
}

fn run_fill<U: Bits>(ctx: &Context<'_>, k: &Fill, value: U) -> Result<()> {
    let out = Writer::<U>::bits(ctx, &k.out)?.streamed(&[], &k.out);
    for_blocks(ctx, k.out.numel(), |start, len| {
        let mut o = Block::new();
        // SAFETY: blocks lie in `0..numel` and are disjoint.
        unsafe { out.write(start, len, &mut o, |out| out.fill(value)) };
    });
    Ok(())
}

/// `out = src`, converted to the type of `out`.
pub(crate) fn copy(ctx: &Context<'_>, k: &Copy) -> Result<()> {
    if k.src.dtype == k.out.dtype {
        return bits_type!(k.out.dtype, U => copy_bits::<U>(ctx, k));
    }
    let out = &k.out;
    match k.src.dtype {
        DType::F64 => cast_from::<f64>(ctx, k, Writer::with(ctx, out, store_cast(out.dtype))?),
        DType::F32 => cast_from::<f32>(ctx, k, f32_writer(ctx, out)?),
        DType::F16 => cast_from::<f16>(ctx, k, f32_writer(ctx, out)?),
        DType::BF16 => cast_from::<bf16>(ctx, k, f32_writer(ctx, out)?),
        DType::I64 => cast_from::<i64>(ctx, k, Writer::with(ctx, out, store_cast(out.dtype))?),
        DType::I32 => cast_from::<i32>(ctx, k, Writer::with(ctx, out, store_cast(out.dtype))?),
        DType::I8 => cast_from::<i8>(ctx, k, Writer::with(ctx, out, store_cast(out.dtype))?),
        DType::U8 | DType::Bool => cast_from::<u8>(ctx, k, Writer::with(ctx, out, store_cast(out.dtype))?),
        DType::C64 => Err(super::refused("copy", DType::C64)),
    }
}

/// Returns a writer of f32 into any type. Conversions among floats that are computed in f32 vectorise.
fn f32_writer(ctx: &Context<'_>, out: &Operand) -> Result<Writer<f32>> {
    match out.dtype {
        DType::F32 => Writer::typed::<f32>(ctx, out),
        DType::F16 => Writer::typed::<f16>(ctx, out),
        DType::BF16 => Writer::typed::<bf16>(ctx, out),
        other => Writer::with(ctx, out, store_cast::<f32>(other)),
    }
}

fn cast_from<T: Element>(ctx: &Context<'_>, k: &Copy, out: Writer<T::Compute>) -> Result<()> {
    let (src, out) = (Reader::typed::<T>(ctx, &k.src, &k.out)?, out.streamed(&[&k.src], &k.out));
    for_blocks(ctx, k.out.numel(), |start, len| {
        let mut a = Block::new();
        // SAFETY: blocks lie in `0..numel` and are disjoint; operands do not alias.
        unsafe { out.copy(start, len, &src, &mut a) };
    });
    Ok(())
}

/// A compute type of sources, and its conversion to any type: floats round once to nearest even, floats to integers truncate (and
/// saturate), integers keep their low bits.
pub(crate) trait Source: Number {
    fn to_f64(self) -> f64;
    fn to_f32(self) -> f32;
    fn to_f16(self) -> f16;
    fn to_bf16(self) -> bf16;
    fn to_i64(self) -> i64;
}

impl Source for f32 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn to_f16(self) -> f16 {
        f16::put(self)
    }
    #[inline(always)]
    fn to_bf16(self) -> bf16 {
        bf16::put(self)
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self as i64
    }
}

macro_rules! through_f64 {
    ($($T:ident)*) => {$(
        impl Source for $T {
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn to_f32(self) -> f32 {
                self as f32
            }
            fn to_f16(self) -> f16 {
                f16::from_f64(self as f64)
            }
            fn to_bf16(self) -> bf16 {
                bf16::from_f64(self as f64)
            }
            fn to_i64(self) -> i64 {
                self as i64
            }
        }
    )*};
}
through_f64!(f64 i64);

pub(crate) fn store_cast<C: Source>(to: DType) -> Store<C> {
    /// # Safety
    /// `out` is an aligned array of `O` that holds the run.
    unsafe fn store<C: Source, O>(out: *mut u8, offset: usize, stride: usize, values: &[C], convert: impl Fn(C) -> O) {
        // SAFETY: the caller asserts bounds and alignment.
        unsafe {
            let out = out.cast::<O>().add(offset);
            if stride == 1 {
                let out = std::slice::from_raw_parts_mut(out, values.len());
                out.iter_mut().zip(values).for_each(|(o, &x)| *o = convert(x));
            } else {
                values.iter().enumerate().for_each(|(i, &x)| *out.add(i * stride) = convert(x));
            }
        }
    }
    macro_rules! to {
        ($convert:expr) => {{
            /// # Safety
            /// As [`store`].
            unsafe fn to<C: Source>(out: *mut u8, offset: usize, stride: usize, values: &[C]) {
                // SAFETY: passed on to the caller.
                unsafe { store(out, offset, stride, values, $convert) }
            }
            to::<C>
        }};
    }
    match to {
        DType::F64 | DType::C64 => to!(|x: C| x.to_f64()),
        DType::F32 => to!(|x: C| x.to_f32()),
        DType::F16 => to!(|x: C| x.to_f16()),
        DType::BF16 => to!(|x: C| x.to_bf16()),
        DType::I64 => to!(|x: C| x.to_i64()),
        DType::I32 => to!(|x: C| x.to_i64() as i32),
        DType::I8 => to!(|x: C| x.to_i64() as i8),
        DType::U8 => to!(|x: C| x.to_i64() as u8),
        DType::Bool => to!(|x: C| (x != C::default()) as u8),
    }
}

/// Copies within one type: whole runs if both sides are contiguous, tiles if one side is transposed.
fn copy_bits<U: Bits>(ctx: &Context<'_>, k: &Copy) -> Result<()> {
    if Runs::new(&k.out.layout).is_contiguous()
        && let Some(plan) = Transpose::plan(&k.src)
    {
        return plan.run::<U>(ctx, k);
    }
    let src = Reader::<U>::bits(ctx, &k.src, &k.out)?;
    let out = Writer::<U>::bits(ctx, &k.out)?.streamed(&[&k.src], &k.out);
    for_blocks(ctx, k.out.numel(), |start, len| {
        let mut a = Block::new();
        // SAFETY: blocks lie in `0..numel` and are disjoint; operands do not alias.
        unsafe { out.copy(start, len, &src, &mut a) };
    });
    Ok(())
}

/// Elements along one side of a tile: four cache lines of f32 in each row of either side.
const TILE: usize = 64;

/// A copy whose source is contiguous along another dimension than its destination. It runs in square tiles, so that both sides use whole
/// cache lines.
struct Transpose {
    /// All dimensions except the two of the tiles: size, source stride, destination stride.
    outer: [(usize, usize, usize); MAX_RANK],
    /// The dimension along which the source is contiguous: size, destination stride.
    source: (usize, usize),
    /// The last dimension: size, source stride.
    last: (usize, usize),
}

impl Transpose {
    /// Returns `None` if no dimension except the last is contiguous in the source, or tiles would be slivers.
    fn plan(src: &Operand) -> Option<Self> {
        let (dims, strides) = (src.dims(), src.layout.strides());
        let last = (0..dims.len()).rev().find(|&i| dims[i] > 1)?;
        let source = (0..last).find(|&i| strides[i] == 1 && dims[i] > 1)?;
        if strides[last] <= 1 || dims[last] < 4 || dims[source] < 4 {
            return None;
        }
        let mut plan = Self { outer: [(1, 0, 0); MAX_RANK], source: (0, 0), last: (dims[last], strides[last]) };
        let mut out_stride = 1;
        for i in (0..dims.len()).rev() {
            if i == source {
                plan.source = (dims[i], out_stride);
            } else if i != last {
                plan.outer[i] = (dims[i], strides[i], out_stride);
            }
            out_stride *= dims[i];
        }
        Some(plan)
    }

    fn run<U: Bits>(&self, ctx: &Context<'_>, k: &Copy) -> Result<()> {
        let src = SharedMut::from_ptr(ctx.bytes(&k.src)?.cast::<U>());
        let out = SharedMut::from_ptr(ctx.bytes(&k.out)?.cast::<U>());
        let matrices: usize = self.outer.iter().map(|o| o.0).product();
        // A task is a band of tiles, with about a block's elements or more.
        let bands = self.source.0.div_ceil(TILE);
        let per_task = (BLOCK / (TILE * self.last.0)).clamp(1, bands.max(1));
        let tasks_each = bands.div_ceil(per_task);
        let band_elements = per_task * TILE * self.last.0;
        ctx.for_pieces(matrices * tasks_each, 1, band_elements, |task, _| {
            let (mut matrix, band) = (task / tasks_each, task % tasks_each);
            let (mut from, mut to) = (0, 0);
            for &(d, s, o) in self.outer.iter().rev() {
                from += matrix % d * s;
                to += matrix % d * o;
                matrix /= d;
            }
            let first = band * per_task * TILE;
            let end = (first + per_task * TILE).min(self.source.0);
            // SAFETY: indices stay below the sizes, so that both sides are in bounds; bands write disjoint rows.
            unsafe { self.band(src.get().add(from), out.get().add(to), first, end) };
        });
        Ok(())
    }

    /// Copies rows `first..end` of the destination.
    ///
    /// # Safety
    /// `src` and `out` are the first elements of one matrix of this plan, and the rows are exclusively ours.
    unsafe fn band<U: Bits>(&self, src: *const U, out: *mut U, first: usize, end: usize) {
        let ((_, out_stride), (columns, src_stride)) = (self.source, self.last);
        // Both sides are walked along their lines. Only the tile, which stays in the first-level cache, is walked across. Otherwise strides
        // of a power of two would fill one set of that cache again and again.
        let mut tile = [[U::default(); TILE]; TILE];
        for top in (first..end).step_by(TILE) {
            let height = TILE.min(end - top);
            for left in (0..columns).step_by(TILE) {
                let width = TILE.min(columns - left);
                // SAFETY: the caller asserts that these rows and columns lie in the matrix.
                unsafe {
                    for j in 0..width {
                        let line = std::slice::from_raw_parts(src.add(top + (left + j) * src_stride), height);
                        for (row, &x) in tile.iter_mut().zip(line) {
                            row[j] = x;
                        }
                    }
                    for (i, row) in tile[..height].iter().enumerate() {
                        std::slice::from_raw_parts_mut(out.add((top + i) * out_stride + left), width)
                            .copy_from_slice(&row[..width]);
                    }
                }
            }
        }
    }
}
