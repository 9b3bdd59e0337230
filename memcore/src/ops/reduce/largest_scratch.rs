//! What PyTorch takes besides the results where it finds the largest elements of rows with several blocks.
//!
//! From `aten/src/ATen/native/cuda/TensorTopK.cu` of torch 2.11, whose sizes the rehearsed library asked for on compute capabilities 7.5 to 12.0.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::index::temporaries::{aligned, bytes};
use crate::profile::Profile;

/// Threads of a block.
const THREADS: usize = 256;

/// Blocks that a multiprocessor holds: each thread takes 40 of its 65,536 registers.
const BLOCKS_AT_ONCE: usize = 65_536 / (40 * THREADS);

/// The least and the most elements of a thread.
const ELEMENTS: (usize, usize) = (4, 64);

/// Values of a digit of eight bits.
const DIGITS: usize = 256;

/// Blocks of which every card that was asked adds up the counts in at most sixteen tiles.
const FEW_BLOCKS: usize = 36_864;

/// True if PyTorch uses several blocks for rows of this many elements.
fn uses_several_blocks(rows: usize, elements: usize) -> bool {
    let least = match rows {
        0..=20 => 20_000,
        21..=40 => 10_000,
        41..=80 => 8_000,
        81..=199 => 5_000,
        200..=799 => 3_000,
        800..=4_000 => 800,
        _ => 400,
    };
    elements >= least
}

/// Allocates and frees what PyTorch does for the largest elements of `rows` rows.
///
/// # Errors
/// [`Error::Invalid`] for several blocks on a card that is not known; errors of the device.
pub(super) fn take_and_free(x: &Array, rows: usize, elements: usize) -> Result<()> {
    if !uses_several_blocks(rows, elements) {
        return Ok(());
    }
    let Some(Sizes { each, scan }) = sizes(x.device().profile(), x.dtype(), rows, elements) else {
        let problem = format!("of {rows} rows of {elements} elements: its scratch on this card is not known");
        return Err(Error::invalid("topk", problem));
    };
    let mut held = each.into_iter().map(|n| bytes(x, n)).collect::<Result<SmallVec<[Array; 8]>>>()?;
    drop(bytes(x, scan)?);
    held.push(bytes(x, scan)?);
    Ok(())
}

/// Bytes of the arrays that live until the end, and of a running sum.
struct Sizes {
    each: SmallVec<[usize; 8]>,
    scan: usize,
}

/// `None` for a card of which they are not known.
fn sizes(profile: &Profile, dtype: DType, rows: usize, elements: usize) -> Option<Sizes> {
    let at_once = profile.multiprocessors?.count * BLOCKS_AT_ONCE * THREADS;
    let each_thread = (rows * elements).div_ceil(at_once).clamp(ELEMENTS.0, ELEMENTS.1);
    let blocks = rows * elements.div_ceil(each_thread * THREADS);
    let tile = match profile.compute_capability? {
        75 | 86 | 89 => 2_304,
        80 => 3_840,
        90 => 4_032,
        100 | 120 => 4_480,
        _ if blocks <= FEW_BLOCKS => FEW_BLOCKS,
        _ => return None,
    };
    let tiles = blocks.div_ceil(tile);
    let scan = aligned(16 * (tiles + 32)) + aligned(4 * tiles) + 255;
    // The largest so far, how many are still sought, which digits they have; counts of digits by block, and over all; counts that are added up.
    let size = dtype.size() as usize;
    let each = smallvec![
        rows * size,
        rows * 8,
        rows * 2 * size.max(4),
        blocks * DIGITS * 2,
        rows * DIGITS * 4,
        blocks * 4,
        blocks * 4
    ];
    Some(Sizes { each, scan })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compute capability, multiprocessors, rows, elements, and the bytes of each array for float32 (`torch.topk` of torch 2.11, rehearsed).
    const SEEN: [(u32, usize, usize, usize, [usize; 8]); 12] = [
        (89, 128, 1, 20_000, [4, 8, 8, 10_240, 1024, 80, 80, 1279]),
        (89, 128, 10, 200_000, [40, 80, 80, 368_640, 10_240, 2880, 2880, 1279]),
        (89, 128, 1024, 4096, [4096, 8192, 8192, 524_288, 1_048_576, 4096, 4096, 1279]),
        (89, 128, 16, 500_000, [64, 128, 128, 393_216, 16_384, 3072, 3072, 1279]),
        (89, 128, 40_000, 800, [160_000, 320_000, 320_000, 20_480_000, 40_960_000, 160_000, 160_000, 1535]),
        (89, 128, 150_000, 800, [600_000, 1_200_000, 1_200_000, 76_800_000, 153_600_000, 600_000, 600_000, 2559]),
        (75, 40, 10, 200_000, [40, 80, 80, 122_880, 10_240, 960, 960, 1279]),
        (75, 40, 200, 3000, [800, 1600, 1600, 204_800, 204_800, 1600, 1600, 1279]),
        (80, 108, 10, 200_000, [40, 80, 80, 312_320, 10_240, 2440, 2440, 1279]),
        (80, 108, 150_000, 800, [600_000, 1_200_000, 1_200_000, 76_800_000, 153_600_000, 600_000, 600_000, 1791]),
        (90, 132, 10, 200_000, [40, 80, 80, 404_480, 10_240, 3160, 3160, 1279]),
        (120, 170, 10, 200_000, [40, 80, 80, 501_760, 10_240, 3920, 3920, 1279]),
    ];

    #[test]
    fn scratch_has_the_sizes_that_pytorch_asks_for() {
        for (capability, count, rows, elements, seen) in SEEN {
            let profile = Profile::torch_2_11(capability).on_card(count);
            let Sizes { each, scan } = sizes(&profile, DType::F32, rows, elements).unwrap();
            assert_eq!([&each[..], &[scan]].concat(), seen, "{capability}: {rows} x {elements}");
        }
    }

    #[test]
    fn larger_types_take_more_for_their_digits() {
        let profile = Profile::torch_2_11(89).on_card(128);
        let first = |dtype| sizes(&profile, dtype, 1024, 1024).unwrap().each[..3].to_vec();
        assert_eq!(first(DType::F64), [8192, 8192, 16_384]);
        assert_eq!(first(DType::F16), [2048, 8192, 8192]);
        assert_eq!(first(DType::U8), [1024, 8192, 8192]);
    }

    #[test]
    fn several_blocks_begin_where_they_did_in_pytorch() {
        let begins = [
            (1, 20_000),
            (20, 20_000),
            (21, 10_000),
            (41, 8_000),
            (81, 5_000),
            (199, 5_000),
            (200, 3_000),
            (799, 3_000),
            (800, 800),
            (4001, 400),
        ];
        for (rows, elements) in begins {
            assert!(uses_several_blocks(rows, elements) && !uses_several_blocks(rows, elements - 1), "{rows}");
        }
    }
}
