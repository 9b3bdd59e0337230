//! Element types as the host knows them.

use bytemuck::Pod;
use half::{bf16, f16};

use super::Array;
use crate::dtype::DType;
use crate::error::Result;

/// A host type with an element type of its own. Masks are read as `u8`.
pub trait HostElement: Pod + Send + Sync {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! host_elements {
    ($($host:ty => $dtype:ident),* $(,)?) => {
        $(impl HostElement for $host { const DTYPE: DType = DType::$dtype; })*
    };
}
host_elements! { f64 => F64, f32 => F32, f16 => F16, bf16 => BF16, i64 => I64, i32 => I32, i8 => I8, u8 => U8 }

pub(super) fn to_f64(array: &Array) -> Result<Vec<f64>> {
    fn read<T: HostElement>(array: &Array, convert: impl Fn(T) -> f64) -> Result<Vec<f64>> {
        Ok(array.to_vec::<T>()?.into_iter().map(convert).collect())
    }
    match array.dtype() {
        DType::F64 => read::<f64>(array, |v| v),
        DType::F32 => read::<f32>(array, f64::from),
        DType::F16 => read::<f16>(array, f64::from),
        DType::BF16 => read::<bf16>(array, f64::from),
        DType::I64 => read::<i64>(array, |v| v as f64),
        DType::I32 => read::<i32>(array, f64::from),
        DType::I8 => read::<i8>(array, f64::from),
        DType::U8 | DType::Bool => read::<u8>(array, f64::from),
    }
}
