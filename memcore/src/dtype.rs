//! Element types.

use std::fmt;

/// The type of a tensor's elements. Names and sizes are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary64; references and gradient checks on the CPU.
    F64,
    /// IEEE binary32, the default.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of an f32.
    BF16,
    /// 64-bit signed integers: class indices, token ids, pooling indices.
    I64,
    /// 32-bit signed integers.
    I32,
    /// 8-bit signed integers: quantised weights.
    I8,
    /// 8-bit unsigned integers.
    U8,
    /// One byte per element, 0 or 1: masks.
    Bool,
}

impl DType {
    /// Every element type.
    pub const ALL: [DType; 9] =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool];

    /// Bytes per element.
    pub const fn size(self) -> u64 {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Whether gradients can flow through values of this type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Whether this is a 16-bit float, whose kernels accumulate in f32.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// The type in which sums over values of this type are accumulated, and in which a
    /// normalisation keeps its statistics: f32 for 16-bit floats, itself otherwise.
    pub const fn accumulator(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    /// PyTorch's name for the type: `float32`, `int64`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "float64",
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::I64 => "int64",
            DType::I32 => "int32",
            DType::I8 => "int8",
            DType::U8 => "uint8",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
