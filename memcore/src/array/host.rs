//! Copies values between an array and the host.

use half::{bf16, f16};

use super::Array;
use super::element::HostElement;
use crate::dtype::DType;
use crate::error::{Error, Result};

impl Array {
    /// Overwrites the elements with host values in row-major order. The array must be contiguous.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of values does not fit or the array has gaps; [`Error::DType`] for another type.
    pub fn write<T: HostElement>(&self, values: &[T]) -> Result<()> {
        self.expect_host::<T>("write")?;
        if values.len() != self.numel() || !self.layout.is_contiguous() {
            return Err(Error::shape("write", format!("{} values for {:?}", values.len(), self.layout)));
        }
        self.storage.bump_version();
        self.device().upload(bytemuck::cast_slice(values), self.operand().region)
    }

    /// Returns the values on the host, in row-major order.
    ///
    /// # Errors
    /// [`Error::NoValues`] on a device that computes nothing; [`Error::DType`] for another type; errors of the backend.
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

    /// Returns the values on the host as f64, whatever their type.
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
            DType::C64 => Err(self.without_values()),
        }
    }

    /// Returns the values as numbers, in row-major order. Takes no memory on the device, whatever the strides are.
    ///
    /// # Errors
    /// As [`Array::to_bytes`].
    #[doc(hidden)]
    pub fn host_values(&self) -> Result<Vec<f64>> {
        Ok(decoded(&self.to_bytes()?, self.dtype))
    }

    /// Overwrites the elements with numbers in row-major order, each rounded to the array's type. The array must be contiguous.
    ///
    /// # Errors
    /// As [`Array::write`].
    #[doc(hidden)]
    pub fn write_values(&self, values: &[f64]) -> Result<()> {
        match self.dtype {
            DType::F64 => self.write(values),
            DType::F32 => self.write(&converted(values, |v| v as f32)),
            DType::F16 => self.write(&converted(values, f16::from_f64)),
            DType::BF16 => self.write(&converted(values, bf16::from_f64)),
            DType::I64 => self.write(&converted(values, |v| v as i64)),
            DType::I32 => self.write(&converted(values, |v| v as i32)),
            DType::I8 => self.write(&converted(values, |v| v as i8)),
            DType::U8 => self.write(&converted(values, |v| v as u8)),
            DType::Bool => self.write(&converted(values, |v| u8::from(v != 0.0))),
            DType::C64 => Err(self.without_values()),
        }
    }

    /// The error of reading or writing complex numbers, which no backend has.
    fn without_values(&self) -> Error {
        Error::DType { op: "values", operand: "self", found: self.dtype, expected: "real numbers" }
    }

    fn expect_host<T: HostElement>(&self, op: &'static str) -> Result<()> {
        if self.dtype.size() == T::DTYPE.size() && (self.dtype == T::DTYPE || self.dtype == DType::Bool) {
            return Ok(());
        }
        Err(Error::DType { op, operand: "self", found: self.dtype, expected: T::DTYPE.name() })
    }
}

fn converted<T>(values: &[f64], convert: impl Fn(f64) -> T) -> Vec<T> {
    values.iter().map(|&value| convert(value)).collect()
}

/// Reads bytes as elements of a type, and returns them as numbers.
#[doc(hidden)]
pub fn decoded(bytes: &[u8], dtype: DType) -> Vec<f64> {
    fn read<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).filter_map(|chunk| chunk.try_into().ok()).map(convert).collect()
    }
    match dtype {
        DType::F64 => read(bytes, f64::from_le_bytes),
        DType::F32 => read(bytes, |b| f64::from(f32::from_le_bytes(b))),
        DType::F16 => read(bytes, |b| f64::from(f16::from_le_bytes(b))),
        DType::BF16 => read(bytes, |b| f64::from(bf16::from_le_bytes(b))),
        DType::I64 => read(bytes, |b| i64::from_le_bytes(b) as f64),
        DType::I32 => read(bytes, |b| f64::from(i32::from_le_bytes(b))),
        DType::I8 => read(bytes, |b| f64::from(i8::from_le_bytes(b))),
        DType::U8 | DType::Bool => read(bytes, |[b]| f64::from(b)),
        DType::C64 => Vec::new(),
    }
}
