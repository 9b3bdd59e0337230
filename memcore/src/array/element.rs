//! Element types on the host.

use bytemuck::Pod;
use half::{bf16, f16};

use crate::dtype::DType;

/// A host type that corresponds to an element type. Masks are read as `u8`.
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
