//! Segments as byte vectors, and access to operands through their strides.

use std::collections::HashMap;

use memcore::backend::{Operand, Region, SegmentId};
use memcore::{DType, Error, Layout, MAX_RANK, Result};

use super::number::{Number, load, store};

/// Contents of fresh memory: NaN as any float, −1 or 255 as an integer.
pub(crate) const POISON: u8 = 0xFF;

/// The segments of a [`Reference`](super::Reference).
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) segments: HashMap<SegmentId, Vec<u8>>,
    pub(crate) next: u32,
    pub(crate) used: u64,
    /// If kept: the values written as 16-bit floats, before rounding. One value for every two bytes of each segment;
    /// NaN if nothing was written there.
    pub(crate) unrounded: Option<HashMap<SegmentId, Vec<f64>>>,
}

impl Memory {
    /// The bytes of a region.
    pub(crate) fn bytes(&self, region: Region) -> Result<&[u8]> {
        let segment = self.segments.get(&region.segment).ok_or(Error::UnknownSegment(region.segment))?;
        segment.get(region.offset as usize..region.end() as usize).ok_or_else(|| outside(region))
    }

    /// The bytes of a region, for writing.
    pub(crate) fn bytes_mut(&mut self, region: Region) -> Result<&mut [u8]> {
        let segment = self.segments.get_mut(&region.segment).ok_or(Error::UnknownSegment(region.segment))?;
        segment.get_mut(region.offset as usize..region.end() as usize).ok_or_else(|| outside(region))
    }

    /// The elements in row-major order.
    pub(crate) fn numbers(&self, x: &Operand) -> Result<Vec<Number>> {
        let (bytes, size) = (self.bytes(x.region)?, x.dtype.size() as usize);
        Ok(positions(&x.layout).map(|i| load(x.dtype, &bytes[i * size..(i + 1) * size])).collect())
    }

    /// The elements in row-major order, as f64.
    pub(crate) fn floats(&self, x: &Operand) -> Result<Vec<f64>> {
        let (bytes, size) = (self.bytes(x.region)?, x.dtype.size() as usize);
        if x.dtype == DType::F32 {
            // Nearly all of them.
            let (singles, _) = bytes.as_chunks();
            return Ok(positions(&x.layout).map(|i| f32::from_le_bytes(singles[i]).into()).collect());
        }
        Ok(positions(&x.layout).map(|i| load(x.dtype, &bytes[i * size..(i + 1) * size]).to_f64()).collect())
    }

    /// The elements in row-major order, as i64.
    pub(crate) fn ints(&self, x: &Operand) -> Result<Vec<i64>> {
        Ok(self.numbers(x)?.into_iter().map(Number::to_i64).collect())
    }

    /// The elements of an operand that may be absent.
    pub(crate) fn optional(&self, x: &Option<Operand>) -> Result<Option<Vec<f64>>> {
        x.as_ref().map(|x| self.floats(x)).transpose()
    }

    /// The one element of a scalar.
    pub(crate) fn scalar(&self, x: &Operand) -> Result<f64> {
        let bytes = self.bytes(x.region)?;
        Ok(load(x.dtype, &bytes[..x.dtype.size() as usize]).to_f64())
    }

    /// Writes the elements, given in row-major order.
    pub(crate) fn write_numbers(&mut self, out: &Operand, values: impl IntoIterator<Item = Number>) -> Result<()> {
        let size = out.dtype.size() as usize;
        let mut unrounded = self.unrounded.as_mut().and_then(|kept| kept.get_mut(&out.region.segment));
        let segment = self.segments.get_mut(&out.region.segment).ok_or(Error::UnknownSegment(out.region.segment))?;
        let bytes = segment
            .get_mut(out.region.offset as usize..out.region.end() as usize)
            .ok_or_else(|| outside(out.region))?;
        for (i, value) in positions(&out.layout).zip(values) {
            store(out.dtype, value, &mut bytes[i * size..(i + 1) * size]);
            if let (Some(kept), true) = (&mut unrounded, out.dtype.is_half()) {
                kept[out.region.offset as usize / 2 + i] = value.to_f64();
            }
        }
        Ok(())
    }

    /// The values written to a 16-bit operand, in row-major order, before rounding.
    pub(crate) fn unrounded(&self, x: &Operand) -> Option<Vec<f64>> {
        let kept = self.unrounded.as_ref()?.get(&x.region.segment)?;
        positions(&x.layout).map(|i| kept.get(x.region.offset as usize / 2 + i).copied()).collect()
    }

    /// Writes floats, rounding each once.
    pub(crate) fn write(&mut self, out: &Operand, values: &[f64]) -> Result<()> {
        self.write_numbers(out, values.iter().map(|&x| Number::F(x)))
    }

    /// Writes integers.
    pub(crate) fn write_ints(&mut self, out: &Operand, values: &[i64]) -> Result<()> {
        self.write_numbers(out, values.iter().map(|&x| Number::I(x)))
    }

    /// Writes an operand that may be absent.
    pub(crate) fn write_optional(&mut self, out: &Option<Operand>, values: &[f64]) -> Result<()> {
        out.as_ref().map_or(Ok(()), |out| self.write(out, values))
    }
}

fn outside(region: Region) -> Error {
    Error::invalid("region", format!("{region:?} reaches outside its segment"))
}

/// Positions of a layout's elements relative to the first, in row-major order.
pub(crate) fn positions(layout: &Layout) -> Positions {
    Positions { layout: *layout, contiguous: layout.is_contiguous(), left: layout.numel(), index: [0; MAX_RANK], at: 0 }
}

/// Counts through a layout as an odometer does.
pub(crate) struct Positions {
    layout: Layout,
    contiguous: bool,
    left: usize,
    index: [usize; MAX_RANK],
    at: usize,
}

impl Iterator for Positions {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        if self.contiguous {
            self.at += 1;
        } else {
            self.advance();
        }
        Some(at)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl Positions {
    fn advance(&mut self) {
        let axes = self.layout.dims().iter().zip(self.layout.strides());
        for ((size, stride), index) in axes.zip(&mut self.index).rev() {
            *index += 1;
            self.at += stride;
            if *index < *size {
                return;
            }
            self.at -= stride * size;
            *index = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_the_strides() {
        let all = |dims: &[usize], strides: &[usize]| -> Vec<usize> {
            let layout = Layout::strided(dims, strides).unwrap();
            assert_eq!(positions(&layout).size_hint(), (layout.numel(), Some(layout.numel())));
            positions(&layout).collect()
        };
        assert_eq!(all(&[2, 3], &[3, 1]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(all(&[2, 3], &[1, 2]), [0, 2, 4, 1, 3, 5]);
        assert_eq!(all(&[2, 2, 2], &[0, 10, 1]), [0, 1, 10, 11, 0, 1, 10, 11]);
        assert!(all(&[2, 0], &[7, 1]).is_empty());
        assert_eq!(all(&[], &[]), [0]);
    }
}
