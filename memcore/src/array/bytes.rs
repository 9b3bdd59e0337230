//! Reads and writes elements as raw bytes, as files hold them.

use super::Array;
use crate::error::{Error, Result};
use crate::layout::Layout;

impl Array {
    /// Returns the elements' bytes in row-major order. Takes no memory on the device: an array with other strides is reordered on the host.
    ///
    /// # Errors
    /// [`Error::NoValues`] on a device that computes nothing; errors of the backend.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if !self.device().computes() {
            return Err(Error::NoValues { device: self.device().name().into(), op: "to_bytes" });
        }
        let region = self.operand().region;
        let mut bytes = vec![0; region.len as usize];
        self.device().download(region, &mut bytes)?;
        Ok(if self.layout().is_contiguous() { bytes } else { in_order(&bytes, self.layout(), self.dtype().size()) })
    }

    /// Overwrites the elements with bytes in row-major order, as [`Array::to_bytes`] returns them. The array must be contiguous.
    ///
    /// # Errors
    /// [`Error::Shape`] if their number does not fit or the array has gaps; errors of the backend.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 != self.nbytes() || !self.layout().is_contiguous() {
            return Err(Error::shape("write_bytes", format!("{} bytes for {:?}", bytes.len(), self.layout())));
        }
        self.storage().bump_version();
        self.device().upload(bytes, self.operand().region)
    }

    /// As [`Array::write_bytes`], into an array of any strides without gaps.
    pub(crate) fn write_bytes_in_order(&self, bytes: &[u8]) -> Result<()> {
        if self.layout().is_contiguous() {
            return self.write_bytes(bytes);
        }
        if bytes.len() as u64 != self.nbytes() || !self.layout().is_dense() {
            return Err(Error::shape("write_bytes", format!("{} bytes for {:?}", bytes.len(), self.layout())));
        }
        self.storage().bump_version();
        let size = self.dtype().size() as usize;
        let mut placed = vec![0; bytes.len()];
        let mut from = bytes.chunks_exact(size);
        each_element(self.layout(), |place| {
            if let Some(element) = from.next() {
                placed[place * size..][..size].copy_from_slice(element);
            }
        });
        self.device().upload(&placed, self.operand().region)
    }
}

/// Returns the elements of a strided view in row-major order.
fn in_order(bytes: &[u8], layout: &Layout, size: u64) -> Vec<u8> {
    let size = size as usize;
    let mut out = Vec::with_capacity(layout.numel() * size);
    each_element(layout, |place| out.extend_from_slice(&bytes[place * size..][..size]));
    out
}

/// Calls `visit` with the place of each element, in row-major order.
fn each_element(layout: &Layout, mut visit: impl FnMut(usize)) {
    let (dims, strides) = (layout.dims(), layout.strides());
    let mut at = vec![0; dims.len()];
    for _ in 0..layout.numel() {
        let element: usize = at.iter().zip(strides).map(|(i, stride)| i * stride).sum();
        visit(element);
        // Advances the index like an odometer: the last dimension changes fastest.
        for axis in (0..dims.len()).rev() {
            at[axis] += 1;
            if at[axis] < dims[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_put_in_order() {
        let bytes: Vec<u8> = (0..12).collect();
        let transposed = Layout::contiguous(&[2, 3]).unwrap().transposed(0, 1);
        assert_eq!(in_order(&bytes, &transposed, 2), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        let broadcast = Layout::contiguous(&[2]).unwrap().broadcast_to(&[2, 2]).unwrap();
        assert_eq!(in_order(&bytes[..2], &broadcast, 1), [0, 1, 0, 1]);
        assert_eq!(in_order(&[7], &Layout::scalar(), 1), [7]);
        assert!(in_order(&[], &Layout::contiguous(&[0, 3]).unwrap().transposed(0, 1), 4).is_empty());
    }
}
