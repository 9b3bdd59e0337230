//! Types and sizes that the tables share.

use memcore::DType;

/// The types of almost every kernel.
pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// More rows than the 65 535 groups that a GPU takes in one dimension of a launch.
pub(crate) const MANY: usize = 65_600;

/// Rows of whole packs, longer than a warp holds of f32, and enough of them for every processor of a large card to have several: name, sizes.
pub(crate) const MANY_LONG_ROWS: (&str, [usize; 2]) = ("many_long_rows", [2120, 1032]);

/// Shapes for row kernels: name, sizes, elements before the first one. [`MANY`] rows are tried only in f32: they test
/// the launch, not the arithmetic.
pub(crate) const ROWS: [(&str, [usize; 2], usize); 11] = [
    ("rows", [5, 7], 0),
    ("offset", [3, 5], 3),
    ("empty", [0, 4], 0),
    ("one", [1, 1], 0),
    ("one_column", [9, 1], 0),
    ("length_257", [3, 257], 0),
    ("length_1000", [3, 1000], 0),
    // Odd and even lengths above the part of a row that a block keeps in its registers, with one element or several at
    // a time.
    ("length_2051", [2, 2051], 0),
    ("long_row", [2, 3000], 0),
    ("length_8200", [2, 8200], 0),
    ("many_rows", [MANY, 3], 0),
];

/// True if a row of [`ROWS`] is tried for this type.
pub(crate) fn is_for(dtype: DType, rows: usize) -> bool {
    dtype == DType::F32 || rows < MANY
}
