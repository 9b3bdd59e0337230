//! Temporaries of PyTorch's embedding gradient above [`UNSORTED_INDICES`] indices, where it sorts the indices and sums runs of equal ones.
//!
//! The sizes follow from the algorithm. N indices of a table of R rows have `S = min(N, R)` runs at most, cut into at most `P = ⌊N/10⌋ + S`
//! pieces of ten. Sizes of CUB's scratch follow its allocation rule (parts aligned to 256 bytes, and 255 bytes to align the whole), with
//! the tile sizes of the profile.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::profile::{IndexSort, Profile};

/// Most indices for which PyTorch uses a kernel without temporaries.
pub(in crate::ops) const UNSORTED_INDICES: usize = 3072;

/// Rows that one warp sums: the length of a piece.
const ROWS_PER_PIECE: usize = 10;

/// Runs that a block takes in the scan over their pieces, on every card.
const RUNS_TILE: usize = 896;

/// Numbers of four bytes that a block takes in a scan over them; measured with torch 2.11 on compute capability 9.0.
const NUMBERS_TILE: usize = 1920;

/// Arrays that live until the gradient is done, dropped last to first.
pub(in crate::ops) struct Held(SmallVec<[Array; 8]>);

impl Drop for Held {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// Allocates the sorted indices of a table of `rows` rows and their original positions. They are made before the gradient itself.
pub(in crate::ops) fn sort(indices: &Array, rows: usize) -> Result<Held> {
    let n = indices.numel();
    let sorted = indices.empty_like()?;
    let origins = indices.empty_like()?;
    let range = indices.empty_like()?;
    let scratch = bytes(indices, radix_sort_bytes(n, rows, indices.device().profile().index_sort))?;
    drop(scratch);
    drop(range);
    Ok(Held(smallvec![sorted, origins]))
}

/// Bytes that sorting `n` numbers takes, each at most `largest`, if the sort reads only the bits that are needed. Indexing does this if there
/// are more numbers than one block sorts.
pub(in crate::ops) fn sort_of_needed_bits(n: usize, largest: usize, sort: IndexSort) -> usize {
    radix_sort_bytes(n, largest, IndexSort { needed_digits: true, ..sort })
}

/// Bytes that sorting `n` numbers takes, each of any value.
pub(in crate::ops) fn sort_of_all_bits(n: usize, sort: IndexSort) -> usize {
    radix_sort_bytes(n, usize::MAX, sort)
}

/// Bytes that the running sums of `n` numbers of this type take. A number of four bytes and its state are one word.
pub(in crate::ops) fn running_sums(n: usize, dtype: DType, sort: IndexSort) -> usize {
    if dtype.size() == 8 {
        return scan_bytes(n, RUNS_TILE, sort);
    }
    aligned(8 * (n.div_ceil(NUMBERS_TILE) + 32)) + if sort.second_part { 256 } else { 0 } + 255
}

/// Most elements that one block counts, without a part for each block.
const COUNTED_AT_ONCE: usize = 4096;

/// Bytes that counting the elements of a mask takes: a number for each of the blocks that the card runs, five times over. Measured with torch 2.11 on
/// compute capabilities 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0, as are those of [`selection_bytes`].
pub(in crate::ops) fn sum_bytes(n: usize, profile: &Profile) -> usize {
    let blocks = profile.multiprocessors.map_or(0, |card| card.count * 5 * (card.threads / 256));
    if n <= COUNTED_AT_ONCE { 1 } else { aligned(4 * blocks) + 255 }
}

/// Bytes that finding the places of those of `n` elements that are set takes.
pub(in crate::ops) fn selection_bytes(n: usize, profile: &Profile) -> usize {
    let tile = match profile.compute_capability {
        Some(91..) => 3520,
        Some(90) | None => 4224,
        Some(80) => 2304,
        Some(_) => 640,
    };
    let second_part = if profile.index_sort.second_part { 256 } else { 0 };
    aligned(8 * (n.div_ceil(tile) + 32)) + second_part + 255
}

/// Allocates the runs of equal indices, their pieces and the pieces' sums. They are made after the gradient `out`.
pub(in crate::ops) fn segments(indices: &Array, out: &Array) -> Result<Held> {
    let (n, width) = (indices.numel(), out.dims()[1]);
    let runs = n.min(out.dims()[0]);
    let words = |len: usize| Array::empty(indices.device(), &[len], DType::I64);
    let mut held = Held(smallvec![words(n)?, words(1)?]);
    let unique_keys = words(n)?;
    let sort = indices.device().profile().index_sort;
    let scratch = bytes(indices, scan_bytes(n, sort.unique_tile, sort))?;
    drop(scratch);
    drop(unique_keys);
    held.0.push(words(runs)?);
    held.0.push(words(runs)?);
    drop(bytes(indices, scan_bytes(runs, RUNS_TILE, sort))?);
    let pieces = n / ROWS_PER_PIECE + runs;
    held.0.push(words(1)?);
    held.0.push(words(pieces)?);
    if few_runs(indices, runs) {
        held.0.push(words(pieces)?);
        if out.dtype().is_half() {
            let wide = || Array::empty(indices.device(), &[out.dims()[0], width], DType::F32);
            held.0.push(context::within("zeros", wide)?);
        }
        return Ok(held);
    }
    held.0.push(Array::empty(indices.device(), &[pieces, width], out.dtype().accumulator())?);
    Ok(held)
}

/// True if runs are long and too few for the card. Then pieces are not summed on their own, but added to the gradient directly (for a 16-bit type,
/// to a gradient in float32), and each piece knows its run. Measured with torch 2.11: more than 30 indices per run, and fewer than four runs per
/// multiprocessor.
fn few_runs(indices: &Array, runs: usize) -> bool {
    let card = indices.device().profile().multiprocessors;
    card.is_some_and(|card| runs < 4 * card.count && indices.numel() > 30 * runs)
}

pub(in crate::ops) fn bytes(like: &Array, n: usize) -> Result<Array> {
    Array::empty(like.device(), &[n], DType::U8)
}

pub(in crate::ops) fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}

/// Bytes of the radix sort: a histogram of 256 bins for each digit of 8 bits (all 8 digits of a word, or only the digits of the row numbers), a
/// look-back word per tile and bin, second buffers of keys and values if there is more than one digit, and a counter per digit.
fn radix_sort_bytes(n: usize, rows: usize, sort: IndexSort) -> usize {
    let bits = rows.max(1).ilog2() as usize + 1;
    let digits = if sort.needed_digits { bits.div_ceil(8) } else { 8 };
    let lookback = n.div_ceil(sort.sort_tile) * 256 * 4;
    let buffers = if digits > 1 { 2 * aligned(8 * n) } else { 0 };
    aligned(digits * 256 * 8) + aligned(lookback) + buffers + aligned(8 * 4) + 255
}

/// Bytes of the scan: a descriptor of 16 bytes per tile and for 32 more, and, from 2.11 on, a second part of at most 256 bytes.
fn scan_bytes(n: usize, tile: usize, sort: IndexSort) -> usize {
    aligned(16 * (n.div_ceil(tile) + 32)) + if sort.second_part { 256 } else { 0 } + 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn the_sort_takes_what_was_recorded() {
        // Rows, and the scratch of 4096 indices with torch 2.11 and with 2.15.
        for (rows, [old, new]) in
            [(200, [83_455, 3583]), (256, [83_455, 71_167]), (50_257, [83_455, 71_167]), (65_536, [83_455, 73_215])]
        {
            let releases = [Profile::torch_2_11(90).index_sort, Profile::torch_2_15(90).index_sort];
            assert_eq!(releases.map(|sort| radix_sort_bytes(4096, rows, sort)), [old, new], "{rows} rows");
        }
    }

    /// Sort, runs and pieces of indices into 50,000 rows; torch 2.11.
    #[test]
    fn scratch_follows_the_tiles_of_the_card() {
        for (sm, n, recorded) in [
            (75, 8449, [156_671, 1535, 1279]),
            (75, 131_072, [2_162_175, 7679, 2047]),
            (80, 4096, [84_479, 1279, 1279]),
            (80, 32_768, [550_399, 1535, 1791]),
            (80, 131_072, [2_149_887, 2303, 2047]),
            (90, 14_337, [250_879, 1279, 1535]),
            (90, 32_257, [541_695, 1279, 1791]),
        ] {
            let sort = Profile::torch_2_11(sm).index_sort;
            let runs = n.min(50_000);
            let ours = [
                radix_sort_bytes(n, 50_000, sort),
                scan_bytes(n, sort.unique_tile, sort),
                scan_bytes(runs, RUNS_TILE, sort),
            ];
            assert_eq!(ours, recorded, "{n} indices on {sm}");
        }
    }

    /// Running sums of one row; torch 2.11.
    #[test]
    fn the_scan_takes_what_was_recorded() {
        let sort = Profile::torch_2_11(90).index_sort;
        for (n, recorded) in
            [(4, [1023, 1279]), (16_384, [1023, 1535]), (100_000, [1279, 2815]), (4_000_000, [17_663, 72_703])]
        {
            assert_eq!([DType::I32, DType::I64].map(|dtype| running_sums(n, dtype, sort)), recorded, "{n}");
        }
        for (n, recorded) in [(4097, 83_967), (20_000, 342_015)] {
            assert_eq!(sort_of_all_bits(n, sort), recorded, "{n}");
        }
    }

    /// Counting the elements of a mask, and finding the places of those that are set; torch 2.11.
    #[test]
    fn the_search_of_a_mask_takes_what_was_recorded() {
        for (sm, count, n, recorded) in [
            (90, 132, 4000, [1, 1023]),
            (90, 132, 200_000, [21_503, 1279]),
            (90, 132, 4_194_304, [21_503, 8959]),
            (90, 132, 40_000_000, [21_503, 76_543]),
            (80, 108, 4_194_304, [17_663, 15_359]),
            (89, 128, 40_000, [15_615, 1279]),
            (86, 82, 40_000_000, [10_239, 500_991]),
            (100, 148, 1_000_000, [24_063, 3071]),
            (120, 170, 40_000_000, [20_735, 91_903]),
            (75, 40, 4_194_304, [3583, 53_247]),
        ] {
            let profile = Profile::torch_2_11(sm).on_card(count);
            assert_eq!([sum_bytes(n, &profile), selection_bytes(n, &profile)], recorded, "{n} elements on {sm}");
        }
    }

    /// As above, with other releases.
    #[test]
    fn scratch_follows_the_release() {
        for (profile, n, recorded) in [
            ("torch-2.7-sm60", 14_337, [251_903, 1535, 1279]),
            ("torch-2.7-sm60", 131_072, [2_151_935, 7423, 1791]),
            ("torch-2.7-sm90", 14_337, [250_879, 1023, 1279]),
            ("torch-2.10-sm80", 32_768, [550_399, 1279, 1535]),
            ("torch-2.10-sm120", 131_072, [2_143_743, 1279, 1791]),
            ("torch-2.10-sm75", 8449, [156_671, 1279, 1023]),
            ("torch-2.12-sm100", 131_072, [2_143_743, 1791, 2047]),
            ("torch-2.13-sm75", 8449, [144_383, 1535, 1279]),
            ("torch-2.13-sm80", 131_072, [2_137_599, 2815, 2047]),
            ("torch-2.13-sm86", 32_257, [530_431, 2815, 1791]),
            ("torch-2.13-sm90", 32_768, [537_087, 1279, 1791]),
            ("torch-2.14-sm120", 131_072, [2_131_455, 1535, 2047]),
        ] {
            let sort = Profile::named(profile).unwrap().index_sort;
            let runs = n.min(50_000);
            let scans = [scan_bytes(n, sort.unique_tile, sort), scan_bytes(runs, RUNS_TILE, sort)];
            assert_eq!([radix_sort_bytes(n, 50_000, sort), scans[0], scans[1]], recorded, "{n} indices, {profile}");
        }
    }
}
