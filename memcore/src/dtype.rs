//! Element types.

use std::fmt;

/// The type of a tensor's elements. Names and sizes are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary64: for references and gradient checks on the CPU.
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
    /// Complex numbers of two binary32, real and imaginary part. Their memory is predicted: no backend computes them.
    C64,
}

impl DType {
    /// Every element type that backends may compute with; complex64 is none of them.
    pub const ALL: [DType; 9] =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool];

    /// Bytes per element.
    pub const fn size(self) -> u64 {
        match self {
            DType::F64 | DType::I64 | DType::C64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// True for a float; gradients can flow through its values.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// True for complex numbers.
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64)
    }

    /// True if gradients can flow through values of this type.
    pub const fn is_differentiable(self) -> bool {
        self.is_float() || self.is_complex()
    }

    /// True for a 16-bit float, whose kernels accumulate in f32.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// The type in which sums over values of this type are accumulated and normalisations keep their statistics: f32
    /// for 16-bit floats, itself otherwise.
    pub const fn accumulator(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    /// The type to which values of both types are promoted: the wider of two floats (float32 for float16 with
    /// bfloat16), the float of a float and an integer, the wider of two integers; bool yields to all, and all but
    /// float64 to complex64. `None` for uint8 with int8 and for float64 with complex64, which PyTorch promotes to types
    /// that are not supported here.
    pub fn promoted(self, other: DType) -> Option<DType> {
        let rank = |dtype: DType| match dtype {
            DType::Bool => 0,
            DType::I8 | DType::U8 => 1,
            DType::I32 => 2,
            DType::I64 => 3,
            DType::F16 | DType::BF16 => 4,
            DType::F32 => 5,
            DType::F64 => 6,
            DType::C64 => 7,
        };
        if matches!((self, other), (DType::F64, DType::C64) | (DType::C64, DType::F64)) {
            return None;
        }
        match rank(self).cmp(&rank(other)) {
            std::cmp::Ordering::Less => Some(other),
            std::cmp::Ordering::Greater => Some(self),
            std::cmp::Ordering::Equal if self == other => Some(self),
            std::cmp::Ordering::Equal => self.is_half().then_some(DType::F32),
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
            DType::C64 => "complex64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_meet_as_in_pytorch() {
        for (a, b, want) in [
            (DType::F16, DType::F32, Some(DType::F32)),
            (DType::F16, DType::BF16, Some(DType::F32)),
            (DType::BF16, DType::F64, Some(DType::F64)),
            (DType::I64, DType::F16, Some(DType::F16)),
            (DType::Bool, DType::U8, Some(DType::U8)),
            (DType::I8, DType::I64, Some(DType::I64)),
            (DType::I8, DType::U8, None),
            (DType::F16, DType::C64, Some(DType::C64)),
            (DType::F64, DType::C64, None),
            (DType::I32, DType::I32, Some(DType::I32)),
        ] {
            assert_eq!((a.promoted(b), b.promoted(a)), (want, want), "{a} and {b}");
        }
    }
}
