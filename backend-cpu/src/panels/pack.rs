//! Copies operands into blocks. The module above describes their layout.

use half::{bf16, f16};

use super::{DEPTH, Pair, ROW, ROWS, TURNED_LEN, WIDTH, Word, panel_len};
use crate::element::{Element, Float};
use crate::simd::{Isa, simd};

/// Elements that can be packed into words of `W`.
pub(crate) trait Packs<W: Word>: Float<Compute = W::Sum> {
    /// Part of a word: one for each of its terms.
    type Piece: crate::parallel::Plain + Default;
    /// Converts an element to a part of a word.
    fn piece(self) -> Self::Piece;
    /// Makes a word of its terms. Ignores `second` if a word has one term.
    fn word(first: Self::Piece, second: Self::Piece) -> W;
}

macro_rules! packs {
    ($($T:ty => $W:ty, $Piece:ty, |$x:ident| $piece:expr, |$first:ident, $second:ident| $word:expr;)*) => {$(
        impl Packs<$W> for $T {
            type Piece = $Piece;
            #[inline(always)]
            fn piece(self) -> $Piece {
                let $x = self;
                $piece
            }
            #[inline(always)]
            fn word($first: $Piece, $second: $Piece) -> $W {
                $word
            }
        }
    )*};
}
packs! {
    f32 => f32, f32, |x| x, |first, _second| first;
    f64 => f64, f64, |x| x, |first, _second| first;
    f16 => f32, f32, |x| x.get(), |first, _second| first;
    bf16 => f32, f32, |x| x.get(), |first, _second| first;
    bf16 => Pair, u16, |x| x.to_bits(), |first, second| Pair(u32::from(second) << 16 | u32::from(first));
}

simd! {
    /// Writes the elements of `from` as pieces to `to`.
    pub(crate) fn pieces<W: Word, T: Packs<W>>(from: &[T], to: &mut [T::Piece]) = pieces_body;
    fn spread<W: Word, T: Packs<W>>(rows: [&[T]; 2], to: &mut [W], width: usize, apart: usize) = spread_body;
}

#[inline(always)]
fn pieces_body<S: Isa, W: Word, T: Packs<W>>(from: &[T], to: &mut [T::Piece]) {
    let n = from.len();
    let to = &mut to[..n];
    for i in 0..n {
        to[i] = from[i].piece();
    }
}

/// Writes the words of two rows (of one, if the second is empty), in chunks of `width` words that begin `apart` words from each other.
#[inline(always)]
fn spread_body<S: Isa, W: Word, T: Packs<W>>(rows: [&[T]; 2], to: &mut [W], width: usize, apart: usize) {
    match width {
        ROWS => chunks::<W, T, ROWS>(rows, to, apart),
        _ => chunks::<W, T, WIDTH>(rows, to, apart),
    }
}

/// Writes chunks of a length that the compiler knows, and then the rest.
#[inline(always)]
fn chunks<W: Word, T: Packs<W>, const N: usize>([first, second]: [&[T]; 2], to: &mut [W], apart: usize) {
    let none = T::Piece::default();
    let whole = first.len() / N;
    for chunk in 0..whole {
        let to = &mut to[chunk * apart..][..N];
        let first = &first[chunk * N..][..N];
        if second.is_empty() {
            for i in 0..N {
                to[i] = T::word(first[i].piece(), none);
            }
        } else {
            let second = &second[chunk * N..][..N];
            for i in 0..N {
                to[i] = T::word(first[i].piece(), second[i].piece());
            }
        }
    }
    let rest = whole * N..first.len();
    if rest.is_empty() {
        return;
    }
    let to = &mut to[whole * apart..][..N];
    to[rest.len()..].fill(W::default());
    for (to, i) in to.iter_mut().zip(rest) {
        *to = T::word(first[i].piece(), if second.is_empty() { none } else { second[i].piece() });
    }
}

/// Part of a matrix: address of its first element, and steps to the next row and column.
#[derive(Clone, Copy)]
pub(crate) struct Part<T> {
    pub(crate) ptr: *const T,
    pub(crate) row: usize,
    pub(crate) col: usize,
}

impl<T> Part<T> {
    fn at(&self, i: usize, j: usize) -> *const T {
        self.ptr.wrapping_add(i * self.row + j * self.col)
    }

    fn turned(self) -> Self {
        Self { row: self.col, col: self.row, ..self }
    }
}

/// Returns the number of words of a left block of `rows` rows. A turned block needs as many.
pub(crate) fn left_len(rows: usize) -> usize {
    rows.next_multiple_of(ROWS) * ROW
}

/// Returns the number of words of a right block of `columns` columns.
pub(crate) fn right_len(columns: usize) -> usize {
    columns.div_ceil(WIDTH) * panel_len(DEPTH)
}

/// Packs `rows` × `terms` of a matrix into a left block. Returns true if the block is turned.
///
/// # Safety
/// The elements exist and no one writes them.
pub(crate) unsafe fn left<W: Word, T: Packs<W>>(from: Part<T>, [rows, terms]: [usize; 2], to: &mut [W]) -> bool {
    if from.row == 1 && from.col != 1 {
        // SAFETY: passed on to the caller.
        unsafe { by_terms(from.turned(), [terms, rows], to, ROWS, TURNED_LEN) };
        return true;
    }
    for i in 0..rows {
        // SAFETY: row i; the caller asserts the rest.
        unsafe { row(from.at(i, 0), from.col, terms, &mut to[i * ROW..][..terms.div_ceil(W::TERMS)]) };
    }
    false
}

/// Packs `terms` × `columns` of a matrix into a right block whose panels are [`panel_len`] words apart.
/// `rows` is a buffer for a left block of [`WIDTH`] rows.
///
/// # Safety
/// The elements exist and no one writes them.
pub(crate) unsafe fn right<W: Word, T: Packs<W>>(
    from: Part<T>,
    [terms, columns]: [usize; 2],
    to: &mut [W],
    rows: &mut [W],
) {
    let depth = terms.div_ceil(W::TERMS);
    if from.col == 1 {
        // SAFETY: passed on to the caller.
        return unsafe { by_terms(from, [terms, columns], to, WIDTH, panel_len(depth)) };
    }
    for (panel, start) in (0..columns).step_by(WIDTH).enumerate() {
        let width = WIDTH.min(columns - start);
        for j in 0..width {
            // SAFETY: column `start + j`; the caller asserts the rest.
            unsafe { row(from.at(0, start + j), from.row, terms, &mut rows[j * ROW..][..depth]) };
        }
        turn(rows, width, &mut to[panel * panel_len(depth)..][..depth * WIDTH]);
    }
}

/// Packs one row of a left block: `terms` elements, `step` apart.
unsafe fn row<W: Word, T: Packs<W>>(from: *const T, step: usize, terms: usize, to: &mut [W]) {
    if let Some(last) = to.last_mut() {
        *last = W::default();
    }
    // SAFETY: words are made of their pieces in the order of their addresses, and `to` has room for `terms` of them.
    let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<T::Piece>(), terms) };
    if step == 1 {
        // SAFETY: the caller asserts that the elements exist.
        return pieces::<W, T>(unsafe { std::slice::from_raw_parts(from, terms) }, to);
    }
    for (i, to) in to.iter_mut().enumerate() {
        // SAFETY: as above.
        *to = unsafe { *from.add(i * step) }.piece();
    }
}

/// Packs a matrix term by term: `across` neighbouring elements of each term, in chunks of `width` words that begin `apart` words from each other.
unsafe fn by_terms<W: Word, T: Packs<W>>(
    from: Part<T>,
    [terms, across]: [usize; 2],
    to: &mut [W],
    width: usize,
    apart: usize,
) {
    for (p, term) in (0..terms).step_by(W::TERMS).enumerate() {
        let second = W::TERMS == 2 && term + 1 < terms;
        // SAFETY: the caller asserts that these rows exist; their elements lie side by side.
        let rows = unsafe {
            [
                std::slice::from_raw_parts(from.at(term, 0), across),
                std::slice::from_raw_parts(
                    from.at(if second { term + 1 } else { term }, 0),
                    if second { across } else { 0 },
                ),
            ]
        };
        spread::<W, T>(rows, &mut to[p * width..], width, apart);
    }
}

/// Transposes `width` rows of a left block into a panel: `to[p][j] = rows[j][p]`.
pub(crate) fn turn<W: Word>(rows: &[W], width: usize, to: &mut [W]) {
    let depth = to.len() / WIDTH;
    assert!(rows.len() >= (WIDTH - 1) * ROW + depth.next_multiple_of(16), "rows of a panel are missing");
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if size_of::<W>() == 4 && crate::simd::level() == crate::simd::Level::Avx512 {
        done = depth - depth % 16;
        for p in (0..done).step_by(16) {
            for j in [0, 16] {
                // SAFETY: AVX-512 is there; 16 rows of 16 words, and as many of the panel, lie in the slices (asserted above).
                unsafe {
                    turn_16(
                        rows.as_ptr().add(j * ROW + p).cast(),
                        ROW,
                        to.as_mut_ptr().add(p * WIDTH + j).cast(),
                        WIDTH,
                    )
                };
            }
        }
    }
    for (p, to) in to.chunks_exact_mut(WIDTH).enumerate().skip(done) {
        for (j, to) in to[..width].iter_mut().enumerate() {
            *to = rows[j * ROW + p];
        }
    }
}

/// Transposes 16 × 16 words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn turn_16(from: *const i32, from_row: usize, to: *mut i32, to_row: usize) {
    use std::arch::x86_64::*;
    let mut rows = [_mm512_setzero_si512(); 16];
    for (i, row) in rows.iter_mut().enumerate() {
        // SAFETY: the caller asserts that the rows exist.
        *row = unsafe { _mm512_loadu_si512(from.add(i * from_row).cast()) };
    }
    let mut pairs = rows;
    for i in (0..16).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // Each 128 bits get one column of four rows.
    let mut fours = pairs;
    for i in (0..16).step_by(4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    // Now `fours[4g + c]` has columns c, c + 4, c + 8, c + 12 of rows 4g..4g + 4.
    for c in 0..4 {
        let [first, second, third, fourth] = [fours[c], fours[4 + c], fours[8 + c], fours[12 + c]];
        let low = [_mm512_shuffle_i32x4::<0x88>(first, second), _mm512_shuffle_i32x4::<0x88>(third, fourth)];
        let high = [_mm512_shuffle_i32x4::<0xdd>(first, second), _mm512_shuffle_i32x4::<0xdd>(third, fourth)];
        let turned = [
            _mm512_shuffle_i32x4::<0x88>(low[0], low[1]),
            _mm512_shuffle_i32x4::<0x88>(high[0], high[1]),
            _mm512_shuffle_i32x4::<0xdd>(low[0], low[1]),
            _mm512_shuffle_i32x4::<0xdd>(high[0], high[1]),
        ];
        for (k, turned) in turned.iter().enumerate() {
            // SAFETY: the caller asserts that the panel's rows exist.
            unsafe { _mm512_storeu_si512(to.add((4 * k + c) * to_row).cast(), *turned) };
        }
    }
}
