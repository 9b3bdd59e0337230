//! Elementwise kernels. Their loop is in `stream.rs`.

mod arithmetic;
mod copy;
mod gradient;
mod select;
mod unary;

pub(crate) use arithmetic::{binary, supports_binary, ternary};
pub(crate) use copy::{Source, copy, fill, store_cast};
pub(crate) use gradient::unary_grad;
pub(crate) use select::{masked_fill, select, triangle};
pub(crate) use unary::{supports_unary, unary};

/// Calls a generic function for the unsigned integer that is as large as a dtype's elements, to move their bits.
macro_rules! bits_type {
    ($dtype:expr, $U:ident => $body:expr) => {
        match $dtype.size() {
            8 => {
                type $U = u64;
                $body
            }
            4 => {
                type $U = u32;
                $body
            }
            2 => {
                type $U = u16;
                $body
            }
            _ => {
                type $U = u8;
                $body
            }
        }
    };
}
use bits_type;

use memcore::DType;

/// The error of a kernel for complex numbers, which are refused before: the backend does not list them among its types.
pub(crate) fn refused(kernel: &'static str, dtype: DType) -> memcore::Error {
    memcore::Error::Unsupported { backend: "cpu".into(), kernel, dtype }
}

/// Returns the bits of `value` as an element of `dtype`, in the low bytes.
fn scalar_bits(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F64 | DType::C64 => value.to_bits(),
        DType::F32 => (value as f32).to_bits() as u64,
        DType::F16 => half::f16::from_f64(value).to_bits() as u64,
        DType::BF16 => half::bf16::from_f64(value).to_bits() as u64,
        DType::I64 => value as i64 as u64,
        DType::I32 => value as i32 as u32 as u64,
        DType::I8 => value as i8 as u8 as u64,
        DType::U8 => value as u8 as u64,
        DType::Bool => (value != 0.0) as u64,
    }
}

/// An unsigned integer that holds the bits of an element.
trait Bits: crate::parallel::Plain + Default + Eq {
    /// Returns the low bytes of `bits`.
    fn low(bits: u64) -> Self;
}

macro_rules! bits {
    ($($U:ident)*) => {$(
        impl Bits for $U {
            fn low(bits: u64) -> Self {
                bits as $U
            }
        }
    )*};
}
bits!(u8 u16 u32 u64);
