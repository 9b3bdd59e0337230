//! What the tables have in common: types and sizes.

use memcore::DType;

/// The types of almost every kernel.
pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// More rows than a GPU takes groups in one dimension of a launch (65 535).
pub(crate) const MANY: usize = 65_600;

/// Shapes for row kernels: name, sizes, elements before the first one. [`MANY`] rows only in f32: it is the
/// launch that they try, not the arithmetic.
pub(crate) const ROWS: [(&str, [usize; 2], usize); 11] = [
    ("rows", [5, 7], 0),
    ("offset", [3, 5], 3),
    ("empty", [0, 4], 0),
    ("one", [1, 1], 0),
    ("one_column", [9, 1], 0),
    ("length_257", [3, 257], 0),
    ("length_1000", [3, 1000], 0),
    // Odd, and even: longer than what a block keeps of a row in its registers, one element or several at a time.
    ("length_2051", [2, 2051], 0),
    ("long_row", [2, 3000], 0),
    ("length_8200", [2, 8200], 0),
    ("many_rows", [MANY, 3], 0),
];

/// Whether a row of [`ROWS`] is tried for this type.
pub(crate) fn is_for(dtype: DType, rows: usize) -> bool {
    dtype == DType::F32 || rows < MANY
}
