//! Between an array and values of the host.

use half::{bf16, f16};

use super::Array;
use super::element::HostElement;
use crate::dtype::DType;
use crate::error::{Error, Result};

impl Array {
    /// Overwrites the elements with host values in row-major order. The array must be contiguous.
    ///
    /// # Errors
    /// [`Error::Shape`] when the number of values does not fit or the array has gaps; [`Error::DType`] for another type.
    pub fn write<T: HostElement>(&self, values: &[T]) -> Result<()> {
        self.expect_host::<T>("write")?;
        if values.len() != self.numel() || !self.layout.is_contiguous() {
            return Err(Error::shape("write", format!("{} values for {:?}", values.len(), self.layout)));
        }
        self.storage.bump_version();
        self.device().upload(bytemuck::cast_slice(values), self.operand().region)
    }

    /// The values on the host, in row-major order.
    ///
    /// # Errors
    /// [`Error::NoValues`] on a device that computes nothing; [`Error::DType`] for another type; the backend's.
    pub fn to_vec<T: HostElement>(&self) -> Result<Vec<T>> {
        self.expect_host::<T>("to_vec")?;
        if !self.device().computes() {
            return Err(Error::NoValues { device: self.device().name().into(), op: "to_vec" });
        }
        let dense = self.contiguous()?;
        let mut values = vec![T::zeroed(); dense.numel()];
        dense.device().download(dense.operand().region, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// The values on the host as f64, whatever their type.
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        fn read<T: HostElement>(array: &Array, convert: impl Fn(T) -> f64) -> Result<Vec<f64>> {
            Ok(array.to_vec::<T>()?.into_iter().map(convert).collect())
        }
        match self.dtype {
            DType::F64 => read::<f64>(self, |v| v),
            DType::F32 => read::<f32>(self, f64::from),
            DType::F16 => read::<f16>(self, f64::from),
            DType::BF16 => read::<bf16>(self, f64::from),
            DType::I64 => read::<i64>(self, |v| v as f64),
            DType::I32 => read::<i32>(self, f64::from),
            DType::I8 => read::<i8>(self, f64::from),
            DType::U8 | DType::Bool => read::<u8>(self, f64::from),
        }
    }

    fn expect_host<T: HostElement>(&self, op: &'static str) -> Result<()> {
        if self.dtype.size() == T::DTYPE.size() && (self.dtype == T::DTYPE || self.dtype == DType::Bool) {
            return Ok(());
        }
        Err(Error::DType { op, operand: "self", found: self.dtype, expected: T::DTYPE.name() })
    }
}
