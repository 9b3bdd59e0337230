use half::{bf16, f16};

use super::kernel::{TileAt, plain_pairs};
use super::pack::{self, Packs, Part};
use super::*;
use crate::element::{Element, Real};
use crate::simd::{Level, level};

/// Small integers, exact in every type, and so are their sums in f32.
fn small(i: usize) -> f64 {
    ((i * 7 + i / 5 * 3) % 15) as f64 - 7.0
}

fn matrix<T: Element<Compute: Real>>(rows: usize, cols: usize, turned: bool) -> (Vec<T>, Vec<f64>) {
    use crate::element::Number;
    let plain: Vec<f64> = (0..rows * cols).map(small).collect();
    let at = |i: usize| if turned { plain[i % rows * cols + i / rows] } else { plain[i] };
    ((0..rows * cols).map(|i| T::put(T::Compute::from_f64(at(i)))).collect(), plain)
}

fn part<T>(of: &[T], rows: usize, cols: usize, turned: bool) -> Part<T> {
    let (row, col) = if turned { (1, rows) } else { (cols, 1) };
    Part { ptr: of.as_ptr(), row, col }
}

/// The product of `[m, k]` and `[k, n]` through blocks, compared with plain sums.
fn check<W: Word, T: Packs<W>>(
    [m, n, k]: [usize; 3],
    [turn_a, turn_b]: [bool; 2],
    tile: unsafe fn(&Job<W>, &mut Sums<W::Sum>),
) {
    let (a, plain_a) = matrix::<T>(m, k, turn_a);
    let (b, plain_b) = matrix::<T>(k, n, turn_b);
    // What is not packed must not matter.
    let garbage = |len: usize| {
        let mut words = vec![W::default(); len];
        // SAFETY: any bits are a word.
        unsafe { std::ptr::write_bytes(words.as_mut_ptr(), 0xff, len) };
        words
    };
    let (mut left, mut right) = (garbage(pack::left_len(m)), garbage(pack::right_len(n)));
    let depth = k.div_ceil(W::TERMS);
    // SAFETY: the matrices are as large as is said.
    let turned = unsafe {
        pack::right(part(&b, k, n, turn_b), [k, n], &mut right, &mut garbage(WIDTH * ROW));
        pack::left(part(&a, m, k, turn_a), [m, k], &mut left)
    };
    let mut seen = 0;
    for (panel, column) in (0..n).step_by(WIDTH).enumerate() {
        for row in (0..m).step_by(ROWS) {
            let left = if turned {
                Left::Turned(left[row / ROWS * TURNED_LEN..].as_ptr(), ROWS)
            } else {
                Left::Rows(left[row * ROW..].as_ptr())
            };
            let right = right[panel * panel_len(depth)..].as_ptr();
            let job = Job { left, right, depth, rows: ROWS.min(m - row), columns: WIDTH.min(n - column) };
            let mut sums = Sums::new();
            // SAFETY: the blocks were just packed; the caller gives an instruction set that the processor has.
            unsafe { tile(&job, &mut sums) };
            for (i, j) in (0..job.rows).flat_map(|i| (0..job.columns).map(move |j| (i, j))) {
                let want: f64 = (0..k).map(|p| plain_a[(row + i) * k + p] * plain_b[p * n + column + j]).sum();
                assert_eq!(sums.0[i][j].to_f64(), want, "{m}×{n}×{k} {turn_a} {turn_b} at {row}+{i}, {column}+{j}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, m * n);
}

const SIZES: [[usize; 3]; 8] =
    [[1, 1, 1], [3, 5, 2], [12, 32, 256], [13, 33, 37], [30, 70, 255], [8, 16, 16], [25, 17, 33], [4, 96, 128]];

fn check_all<W: Word, T: Packs<W>>(tile: unsafe fn(&Job<W>, &mut Sums<W::Sum>)) {
    for sizes in SIZES {
        for turns in [[false, false], [false, true], [true, false], [true, true]] {
            check::<W, T>(sizes, turns, tile);
        }
    }
}

/// Every instruction set that this processor has, in every type.
#[test]
fn tiles_are_the_plain_sums_with_all_instructions() {
    fn baseline<W: TileAt>(job: &Job<W>, sums: &mut Sums<W::Sum>) {
        // SAFETY: every processor has it; `check` gives blocks as they are described.
        unsafe { W::tile_at(Level::Baseline, job, sums) }
    }
    check_all::<f32, f32>(baseline::<f32>);
    check_all::<f64, f64>(baseline::<f64>);
    #[cfg(target_arch = "x86_64")]
    if level() != Level::Baseline {
        fn avx2<W: TileAt>(job: &Job<W>, sums: &mut Sums<W::Sum>) {
            // SAFETY: only called where the processor has it; `check` gives blocks as they are described.
            unsafe { W::tile_at(Level::Avx2, job, sums) }
        }
        check_all::<f32, f32>(avx2::<f32>);
        check_all::<f64, f64>(avx2::<f64>);
    }
    check_all::<f32, f32>(<f32 as Word>::tile);
    check_all::<f64, f64>(<f64 as Word>::tile);
    check_all::<f32, f16>(<f32 as Word>::tile);
    check_all::<f32, bf16>(<f32 as Word>::tile);
}

/// The instruction for pairs of bf16, and what stands for it on processors without.
#[test]
fn pairs_of_bf16_are_the_plain_sums() {
    check_all::<Pair, bf16>(plain_pairs);
    check_all::<Pair, bf16>(<Pair as Word>::tile);
}
