//! Several arrays as one.

use std::borrow::Borrow;

use smallvec::SmallVec;

use super::Array;
use crate::error::{Error, Result};

impl Array {
    /// The parts one after the other along `axis`, in a copy.
    ///
    /// # Errors
    /// [`Error::Shape`] when there is none or their other sizes differ, [`Error::DType`] for parts of several types; as [`Array::empty`].
    pub fn cat<A: Borrow<Array>>(parts: &[A], axis: usize) -> Result<Self> {
        let parts = || parts.iter().map(Borrow::borrow);
        let Some(first) = parts().next() else { return Err(Error::shape("cat", "of nothing")) };
        let mut dims: SmallVec<[usize; 6]> = first.dims().into();
        let Some(len) = dims.get_mut(axis) else {
            return Err(Error::shape("cat", format!("axis {axis} of {:?}", first.dims())));
        };
        *len = parts().filter_map(|part| part.dims().get(axis)).sum();
        for part in parts() {
            first.check_partner("cat", part)?;
            let d = part.dims();
            if d.len() != dims.len() || d[..axis] != dims[..axis] || d[axis + 1..] != dims[axis + 1..] {
                return Err(Error::shape("cat", format!("{:?} and {d:?} along axis {axis}", first.dims())));
            }
        }
        let out = Self::empty(first.device(), &dims, first.dtype())?;
        let mut start = 0;
        for part in parts() {
            let len = part.dims()[axis];
            out.narrow(axis, start, len)?.copy_(part)?;
            start += len;
        }
        Ok(out)
    }
}
