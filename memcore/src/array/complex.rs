//! Complex numbers and their parts: the same memory as elements of the other type.

use super::Array;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;

impl Array {
    /// Views complex numbers as floats, with a last dimension of 2: real and imaginary parts.
    ///
    /// # Errors
    /// [`Error::DType`] for another type than complex64; [`Error::Shape`] for too many dimensions.
    pub(crate) fn as_real(&self) -> Result<Self> {
        let real = self.real()?;
        let (mut dims, mut strides) = (real.dims().to_vec(), real.layout.strides().to_vec());
        dims.push(2);
        strides.push(1);
        Ok(Self { layout: Layout::strided(&dims, &strides)?, ..real })
    }

    /// Views the real parts of complex numbers. As every view that PyTorch makes, it holds what it is a view of.
    ///
    /// # Errors
    /// [`Error::DType`] for another type than complex64.
    pub(crate) fn real(&self) -> Result<Self> {
        if self.dtype != DType::C64 {
            return Err(Error::DType { op: "real", operand: "self", found: self.dtype, expected: DType::C64.name() });
        }
        let strides: smallvec::SmallVec<[usize; 6]> = self.layout.strides().iter().map(|stride| 2 * stride).collect();
        let layout = Layout::strided(self.dims(), &strides)?;
        Ok(Self { dtype: DType::F32, layout, offset: 2 * self.offset, ..self.clone() }.keeping_base())
    }

    /// Views floats with a last dimension of 2, one after the other, as complex numbers.
    ///
    /// # Errors
    /// [`Error::DType`] for another type than float32; [`Error::Shape`] for floats that do not lie in pairs.
    pub(crate) fn as_complex(&self) -> Result<Self> {
        if self.dtype != DType::F32 {
            return Err(Error::DType {
                op: "view_as_complex",
                operand: "self",
                found: self.dtype,
                expected: "float32",
            });
        }
        let misfit = || Error::shape("view_as_complex", format!("{:?} does not lie in pairs", self.layout));
        let (Some((2, dims)), Some((1, strides))) = (self.dims().split_last(), self.layout.strides().split_last())
        else {
            return Err(misfit());
        };
        let in_pairs = dims.iter().zip(strides).all(|(size, stride)| *size == 1 || stride % 2 == 0);
        if !in_pairs || !self.offset.is_multiple_of(2) {
            return Err(misfit());
        }
        let strides: smallvec::SmallVec<[usize; 6]> = strides.iter().map(|stride| stride / 2).collect();
        let layout = Layout::strided(dims, &strides)?;
        Ok(Self { dtype: DType::C64, layout, offset: self.offset / 2, ..self.clone() }.keeping_base())
    }

    /// True if the first element lies an even number of elements after the start of its memory.
    pub(crate) fn starts_at_even(&self) -> bool {
        self.offset.is_multiple_of(2)
    }

    /// The conjugates of complex numbers in memory of their own, laid out as these; `None` for other numbers, which are their own.
    ///
    /// # Errors
    /// As [`Array::empty`].
    pub(crate) fn conjugated(&self) -> Result<Option<Self>> {
        let is_complex = self.dtype.is_complex();
        is_complex.then(|| Self::empty_for(self.device(), self.dims(), &[&self.layout], self.dtype)).transpose()
    }
}
