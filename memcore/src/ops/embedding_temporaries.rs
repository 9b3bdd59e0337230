//! What PyTorch's embedding gradient allocates beyond [`UNSORTED_INDICES`] indices, where it sorts them and sums runs of equal ones.
//!
//! The sizes follow from the algorithm: with N indices of a table of R rows, `S = min(N, R)` runs at most, cut into at most
//! `P = ⌊N/10⌋ + S` pieces of ten. Sizes of CUB's scratch follow its allocation rule (parts aligned to 256 bytes, and 255 bytes to
//! align the whole) with the tile sizes of compute capability 9.0; a few hundred bytes of them may differ elsewhere.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::dtype::DType;
use crate::error::Result;

/// Up to so many indices PyTorch uses a kernel without temporaries.
pub(super) const UNSORTED_INDICES: usize = 3072;

/// Rows summed by one warp: the length of a piece.
const ROWS_PER_PIECE: usize = 10;

/// Keys that one block of CUB's one-sweep radix sort takes (384 threads, 11 pairs of 8-byte words each).
const SORT_TILE: usize = 4224;

/// Elements that the scan and unique kernels' descriptors are counted by: one of 16 bytes per tile, and 32 more.
const SCAN_TILE: usize = 2048;

/// Arrays that live until the gradient is done, dropped last to first.
pub(super) struct Held(SmallVec<[Array; 8]>);

impl Drop for Held {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// The sorted indices and where each was; made before the gradient itself.
pub(super) fn sort(indices: &Array) -> Result<Held> {
    let n = indices.numel();
    let sorted = indices.empty_like()?;
    let origins = indices.empty_like()?;
    let range = indices.empty_like()?;
    let scratch = bytes(indices, radix_sort_bytes(n))?;
    drop(scratch);
    drop(range);
    Ok(Held(smallvec![sorted, origins]))
}

/// The runs of equal indices, their pieces and the pieces' sums; made after the gradient `out`.
pub(super) fn segments(indices: &Array, out: &Array) -> Result<Held> {
    let (n, width) = (indices.numel(), out.dims()[1]);
    let runs = n.min(out.dims()[0]);
    let words = |len: usize| Array::empty(indices.device(), &[len], DType::I64);
    let mut held = Held(smallvec![words(n)?, words(1)?]);
    let unique_keys = words(n)?;
    let scratch = bytes(indices, scan_bytes(n))?;
    drop(scratch);
    drop(unique_keys);
    held.0.push(words(runs)?);
    held.0.push(words(runs)?);
    drop(bytes(indices, scan_bytes(runs))?);
    let pieces = n / ROWS_PER_PIECE + runs;
    held.0.push(words(1)?);
    held.0.push(words(pieces)?);
    held.0.push(Array::empty(indices.device(), &[pieces, width], out.dtype().accumulator())?);
    Ok(held)
}

fn bytes(like: &Array, n: usize) -> Result<Array> {
    Array::empty(like.device(), &[n], DType::U8)
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}

/// One histogram of 256 bins for each of 8 digits, a look-back word per tile and bin, second buffers of keys and values, and a counter per
/// digit.
fn radix_sort_bytes(n: usize) -> usize {
    let bins = 8 * 256 * 8;
    let lookback = n.div_ceil(SORT_TILE) * 256 * 4;
    aligned(bins) + aligned(lookback) + 2 * aligned(8 * n) + aligned(8 * 4) + 255
}

/// A descriptor per tile, and a second part of at most 256 bytes.
fn scan_bytes(n: usize) -> usize {
    aligned(16 * (n.div_ceil(SCAN_TILE) + 32)) + 256 + 255
}
