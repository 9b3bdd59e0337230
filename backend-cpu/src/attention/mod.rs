//! Fused attention, its gradient, and rotary embedding.
//!
//! Scores exist tile by tile in a thread's scratch: some queries by some keys. Tiles are converted to the compute type when they are
//! loaded, and one side of a product is transposed, so that all products run over contiguous columns (`tile.rs`). A task is a tile of the
//! output, so that tasks share nothing and every sum has one order.

mod forward;
mod gradient;
mod rope;
mod tile;

pub(crate) use forward::attention;
pub(crate) use gradient::attention_grad;
pub(crate) use rope::rope;

use std::ops::Range;

use memcore::DType;
use memcore::backend::Operand;
use memcore::error::{Error, Result};

use crate::element::{Element, Float, Number, Real};
use crate::parallel::SCRATCH_BYTES;
use crate::view::{Context, SharedMut, Stored};
use tile::{COLUMNS, add_converted, convert, convert_strided, scale_rows};

/// Minimum number of multiplications per task, if there are enough.
const TASK: usize = 64 << 10;

/// True if tiles of heads of these sizes fit the scratch, as they do up to a thousand elements and more.
pub(crate) fn supports(q: &Operand, v: &Operand) -> bool {
    let bytes = if q.dtype == DType::F64 { 8 } else { 4 };
    Tiles::fit(1, 1, q.dims()[3], v.dims()[3], SCRATCH_BYTES / bytes).is_some()
}

/// Sizes of an attention problem: batch, query heads, key heads, queries, keys, and elements of a key and of a value.
#[derive(Clone, Copy)]
struct Sizes {
    b: usize,
    h: usize,
    hk: usize,
    t: usize,
    s: usize,
    d: usize,
    dv: usize,
    tiles: Tiles,
}

impl Sizes {
    fn new<T: Float>(q: &Operand, k: &Operand, v: &Operand) -> Result<Self> {
        let (q, k, dv) = (q.dims(), k.dims(), v.dims()[3]);
        let room = SCRATCH_BYTES / size_of::<T::Compute>();
        let tiles = Tiles::fit(q[2], k[2], q[3], dv, room)
            .ok_or_else(|| Error::invalid("attention", format!("heads of {} and {dv} elements are too wide", q[3])))?;
        Ok(Self { b: q[0], h: q[1], hk: k[1], t: q[2], s: k[2], d: q[3], dv, tiles })
    }

    /// Distance between rows of keys in a tile.
    fn key_row(&self) -> usize {
        self.d.next_multiple_of(COLUMNS)
    }

    /// Distance between rows of values in a tile.
    fn value_row(&self) -> usize {
        self.dv.next_multiple_of(COLUMNS)
    }

    /// Batch and head of a query head in `0..b·h`, and of its key head.
    fn heads(&self, head: usize) -> ([usize; 2], [usize; 2]) {
        let at = [head / self.h, head % self.h];
        (at, [at[0], at[1] / (self.h / self.hk)])
    }

    /// Runs `f(i, room)` for `tasks` tiles of `across` rows, each against `along` other rows. `room` is scratch.
    fn for_tiles<R: Real>(
        &self,
        ctx: &Context<'_>,
        tasks: usize,
        [across, along]: [usize; 2],
        f: impl Fn(usize, &mut [R]) + Sync + Send,
    ) {
        let work = (across * along * (self.d + self.dv)).max(1);
        ctx.for_pieces(tasks, TASK / work, work, |start, end| {
            let mut scratch = ctx.scratch();
            let room = scratch.slice_mut::<R>(self.tiles.room(self.d, self.dv));
            (start..end).for_each(|i| f(i, room));
        });
    }
}

/// Number of queries and keys in a tile: multiples of [`COLUMNS`].
#[derive(Clone, Copy)]
struct Tiles {
    queries: usize,
    keys: usize,
}

impl Tiles {
    /// Returns the largest tiles that fit `room` elements and are not larger than the problem.
    fn fit(t: usize, s: usize, d: usize, dv: usize, room: usize) -> Option<Self> {
        let limit = |n: usize, most: usize| n.max(1).next_multiple_of(COLUMNS).min(most);
        [(32, 64), (32, 32), (16, 16)]
            .map(|(queries, keys)| Self { queries: limit(t, queries), keys: limit(s, keys) })
            .into_iter()
            .find(|tiles| tiles.room(d, dv) <= room)
    }

    /// Number of elements in all tiles that any of the passes holds.
    fn room(&self, d: usize, dv: usize) -> usize {
        let widths = d.next_multiple_of(COLUMNS) + dv.next_multiple_of(COLUMNS);
        let (most, least) = (self.queries.max(self.keys), self.queries.min(self.keys));
        (2 * most + least) * widths + 2 * self.queries * self.keys + 4 * self.queries
    }
}

/// Takes the next `len` elements of a scratch.
fn take<'a, R>(room: &mut &'a mut [R], len: usize) -> &'a mut [R] {
    let (taken, rest) = std::mem::take(room).split_at_mut(len);
    *room = rest;
    taken
}

/// An operand `[b, h, n, width]` whose rows are contiguous.
struct Rows<T> {
    ptr: SharedMut<T>,
    strides: [usize; 3],
    width: usize,
}

impl<T: Float> Rows<T> {
    fn new(ctx: &Context<'_>, operand: &Operand) -> Result<Self> {
        let (strides, width) = (operand.layout.strides(), operand.dims()[3]);
        // Rows without elements all begin at the start, because the others need not exist.
        let strides = if width == 0 { [0; 3] } else { [strides[0], strides[1], strides[2]] };
        Ok(Self { ptr: SharedMut::from_ptr(ctx.ptr::<T>(operand)?), strides, width })
    }

    fn offset(&self, [b, h]: [usize; 2], i: usize) -> usize {
        b * self.strides[0] + h * self.strides[1] + i * self.strides[2]
    }

    /// # Safety
    /// The row exists, and nobody writes it meanwhile.
    unsafe fn row<'a>(&self, head: [usize; 2], i: usize) -> &'a [T] {
        // SAFETY: the caller asserts it; `ptr` checked the operand's extent.
        unsafe { self.ptr.view(self.offset(head, i), self.width) }
    }

    /// # Safety
    /// The row exists, of an operand that the call writes, and is the caller's alone.
    unsafe fn write(&self, head: [usize; 2], i: usize, from: &[T::Compute], factor: T::Compute) {
        // SAFETY: the caller asserts it; `ptr` checked the operand's extent.
        let row = unsafe { self.ptr.part(self.offset(head, i), self.width) };
        for (to, &x) in row.iter_mut().zip(from) {
            *to = T::put(x * factor);
        }
    }

    /// Loads rows `rows` of a head into rows of a tile, `stride` apart.
    ///
    /// # Safety
    /// The rows exist, and nobody writes them meanwhile.
    unsafe fn load(&self, head: [usize; 2], rows: Range<usize>, to: &mut [T::Compute], stride: usize) {
        for (at, i) in rows.enumerate() {
            // SAFETY: passed on to the caller.
            convert(unsafe { self.row(head, i) }, &mut to[at * stride..][..self.width]);
        }
    }

    /// Loads rows `rows` of a head into columns of a tile whose rows are `stride` apart.
    ///
    /// # Safety
    /// As [`Rows::load`].
    unsafe fn load_transposed(&self, head: [usize; 2], rows: Range<usize>, to: &mut [T::Compute], stride: usize) {
        if self.width == 0 {
            return;
        }
        for (at, i) in rows.enumerate() {
            // SAFETY: passed on to the caller.
            convert_strided(unsafe { self.row(head, i) }, &mut to[at..], stride);
        }
    }
}

/// An operand `[b, h, t, s]` with an element for every score, with any strides.
struct Pairs<T> {
    ptr: SharedMut<T>,
    strides: [usize; 4],
}

impl<T: Float> Pairs<T> {
    fn new(ctx: &Context<'_>, operand: &Operand) -> Result<Self> {
        let s = operand.layout.strides();
        Ok(Self { ptr: SharedMut::from_ptr(ctx.ptr::<T>(operand)?), strides: [s[0], s[1], s[2], s[3]] })
    }

    fn offset(&self, [b, h]: [usize; 2], query: usize, key: usize) -> usize {
        b * self.strides[0] + h * self.strides[1] + query * self.strides[2] + key * self.strides[3]
    }

    /// Writes `value(i, j)` for the `i`-th of these queries and the `j`-th of these keys.
    ///
    /// # Safety
    /// The head, the queries and the keys exist, of an operand that the call writes, and their elements are the
    /// caller's alone.
    unsafe fn write(
        &self,
        head: [usize; 2],
        queries: Range<usize>,
        keys: Range<usize>,
        value: impl Fn(usize, usize) -> T::Compute,
    ) {
        for (i, query) in queries.enumerate() {
            let first = self.offset(head, query, keys.start);
            for j in 0..keys.len() {
                // SAFETY: the caller asserts it; `ptr` checked the operand's extent. Only these elements are touched, not
                // what lies between them, which may be another task's.
                unsafe { *self.ptr.get().add(first + j * self.strides[3]) = T::put(value(i, j)) };
            }
        }
    }
}

/// Settings that turn products of queries and keys into scores.
struct Scores<T: Element> {
    scale: T::Compute,
    causal: bool,
    mask: Option<Pairs<T>>,
}

impl<T: Float + Stored> Scores<T> {
    fn new(ctx: &Context<'_>, scale: f64, causal: bool, mask: &Option<Operand>) -> Result<Self> {
        let mask = mask.as_ref().map(|mask| Pairs::new(ctx, mask)).transpose()?;
        Ok(Self { scale: T::Compute::from_f64(scale), causal, mask })
    }

    /// Computes `scale·x + mask`, and −∞ for future keys, in a tile whose rows are `stride` apart. Its rows are keys if `keys_are_rows`,
    /// else queries.
    ///
    /// # Safety
    /// The head, the queries and the keys exist.
    unsafe fn finish(
        &self,
        tile: &mut [T::Compute],
        stride: usize,
        head: [usize; 2],
        queries: Range<usize>,
        keys: Range<usize>,
        keys_are_rows: bool,
    ) {
        let (rows, columns) = if keys_are_rows { (&keys, &queries) } else { (&queries, &keys) };
        scale_rows(tile, stride, [rows.len(), columns.len()], self.scale);
        for (at, row) in rows.clone().enumerate() {
            let line = &mut tile[at * stride..][..columns.len()];
            if let Some(mask) = &self.mask {
                let (query, key, along) = if keys_are_rows { (columns.start, row, 2) } else { (row, columns.start, 3) };
                // SAFETY: these positions are the mask's, says the caller; nobody writes it.
                unsafe { add_mask(line, mask.ptr, mask.offset(head, query, key), mask.strides[along]) };
            }
            if self.causal && keys_are_rows {
                let hidden = row.saturating_sub(columns.start).min(line.len());
                line[..hidden].fill(T::Compute::LOWEST);
            } else if self.causal {
                let seen = (row + 1).saturating_sub(columns.start).min(line.len());
                line[seen..].fill(T::Compute::LOWEST);
            }
        }
    }
}

/// Adds elements `first`, `first + step`, … of a mask to a line of scores.
///
/// # Safety
/// The elements exist, and nobody writes them meanwhile.
unsafe fn add_mask<T: Float>(line: &mut [T::Compute], mask: SharedMut<T>, first: usize, step: usize) {
    if step == 1 {
        // SAFETY: passed on to the caller.
        add_converted(line, unsafe { mask.view(first, line.len()) });
        return;
    }
    for (i, x) in line.iter_mut().enumerate() {
        // SAFETY: passed on to the caller.
        *x = *x + unsafe { *mask.get().add(first + i * step) }.get();
    }
}
