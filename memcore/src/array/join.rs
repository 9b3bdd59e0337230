//! Joins several arrays into one.

use std::borrow::Borrow;

use smallvec::SmallVec;

use super::Array;
use crate::dtype::DType;
use crate::error::{Error, Result};

impl Array {
    /// Copies the parts one after the other along `axis`, in their common type. Channels are innermost if they are so in all parts.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are no parts or their other sizes differ; [`Error::DType`] for types without a common type; as
    /// [`Array::empty`].
    pub fn cat<A: Borrow<Array>>(parts: &[A], axis: usize) -> Result<Self> {
        let parts = || parts.iter().map(Borrow::borrow);
        let Some(first) = parts().next() else { return Err(Error::shape("cat", "of nothing")) };
        let mut dims: SmallVec<[usize; 6]> = first.dims().into();
        let Some(len) = dims.get_mut(axis) else {
            return Err(Error::shape("cat", format!("axis {axis} of {:?}", first.dims())));
        };
        *len = parts().filter_map(|part| part.dims().get(axis)).sum();
        let dtype = common_type("cat", parts())?;
        for part in parts() {
            let d = part.dims();
            if d.len() != dims.len() || d[..axis] != dims[..axis] || d[axis + 1..] != dims[axis + 1..] {
                return Err(Error::shape("cat", format!("{:?} and {d:?} along axis {axis}", first.dims())));
            }
        }
        let out = match dims[..] {
            [n, c, h, w] if parts().all(|part| part.layout().is_channels_last()) => {
                Self::empty(first.device(), &[n, h, w, c], dtype)?.permute(&[0, 3, 1, 2])?
            }
            _ => Self::empty(first.device(), &dims, dtype)?,
        };
        let mut start = 0;
        for part in parts() {
            let len = part.dims()[axis];
            out.narrow(axis, start, len)?.copy_(part)?;
            start += len;
        }
        Ok(out)
    }
}

/// Returns the common type of all parts, which must be on one device.
///
/// # Errors
/// [`Error::DeviceMismatch`]; [`Error::DType`] for types without a common type; [`Error::Shape`] for no parts.
pub(crate) fn common_type<'a>(op: &'static str, mut parts: impl Iterator<Item = &'a Array>) -> Result<DType> {
    let first = parts.next().ok_or_else(|| Error::shape(op, "of nothing"))?;
    parts.try_fold(first.dtype(), |dtype, part| {
        first.check_device(op, part)?;
        let mismatch = || Error::DType { op, operand: "parts", found: part.dtype(), expected: dtype.name() };
        dtype.promoted(part.dtype()).ok_or_else(mismatch)
    })
}
