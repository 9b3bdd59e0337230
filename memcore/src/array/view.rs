//! Views: other sizes and strides over the same memory. No function here allocates, except where its comment says so.

use std::sync::Arc;

use super::Array;
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;

impl Array {
    fn with_layout(&self, layout: Layout, offset: usize) -> Self {
        Self {
            storage: Arc::clone(&self.storage),
            dtype: self.dtype,
            layout,
            offset: self.offset + offset,
            view: self.view.clone(),
        }
    }

    /// Number of elements between the first element of `base`, which has the same memory, and the first element of this array.
    pub(crate) fn start_after(&self, base: &Array) -> usize {
        self.offset.saturating_sub(base.offset)
    }

    /// Returns elements of this memory in the given layout, `start` elements after the first one.
    ///
    /// # Errors
    /// [`Error::Shape`] if they would reach beyond the memory that this array covers.
    pub(crate) fn part(&self, layout: &Layout, start: usize) -> Result<Self> {
        if start + layout.span() > self.layout.span() {
            return Err(Error::shape("as_strided", format!("{layout:?} from {start} on in {:?}", self.layout)));
        }
        Ok(self.with_layout(*layout, start))
    }

    /// Returns the same elements with other sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] if the counts differ or the strides do not allow a view (see [`Array::reshape`]).
    pub fn view(&self, dims: &[usize]) -> Result<Self> {
        let layout = self.layout.viewed(dims).ok_or_else(|| {
            Error::shape("view", format!("{:?} cannot be viewed as {dims:?} without a copy", self.layout))
        })?;
        Ok(self.with_layout(layout, 0))
    }

    /// Reads contiguous bytes as elements of another type.
    ///
    /// # Errors
    /// [`Error::Shape`] for elements larger than a byte, for gaps between them, or if they do not start and end at an element of the other
    /// type.
    pub(crate) fn of_type(&self, dtype: DType) -> Result<Self> {
        let size = dtype.size() as usize;
        let whole = self.offset.is_multiple_of(size) && self.numel().is_multiple_of(size);
        if self.dtype.size() != 1 || !self.layout.is_contiguous() || !whole {
            let found = format!("{:?} of {:?} from {} on", self.layout, self.dtype, self.offset);
            return Err(Error::shape("of_type", format!("{found}: not as many whole {dtype:?}")));
        }
        let layout = Layout::contiguous(&[self.numel() / size])?;
        Ok(Self { dtype, offset: self.offset / size, ..self.with_layout(layout, 0) })
    }

    /// Returns the same elements with other sizes. Copies if a view is not possible.
    ///
    /// # Errors
    /// [`Error::Shape`] if the counts differ; as [`Array::empty`] for the copy.
    pub fn reshape(&self, dims: &[usize]) -> Result<Self> {
        match self.layout.viewed(dims) {
            Some(layout) => Ok(self.with_layout(layout, 0)),
            None => self.copied()?.view(dims),
        }
    }

    /// Exchanges dimensions `a` and `b`.
    ///
    /// # Errors
    /// [`Error::Shape`] for an axis that does not exist.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        self.check_axis("transpose", a.max(b))?;
        Ok(self.with_layout(self.layout.transposed(a, b), 0))
    }

    /// Exchanges rows and columns of a matrix (with more dimensions: the last two).
    ///
    /// # Errors
    /// [`Error::Shape`] for fewer than two dimensions.
    pub fn t(&self) -> Result<Self> {
        match self.rank() {
            0 | 1 => Err(Error::shape("t", format!("{:?} has no two dimensions", self.dims()))),
            rank => self.transpose(rank - 2, rank - 1),
        }
    }

    /// Returns the dimensions in the order of `axes`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `axes` is not a permutation.
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        Ok(self.with_layout(self.layout.permuted(axes)?, 0))
    }

    /// Returns `len` indices of dimension `axis`, starting at `start`.
    ///
    /// # Errors
    /// [`Error::Shape`] if they do not exist.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Self> {
        self.check_axis("narrow", axis)?;
        if start.checked_add(len).is_none_or(|end| end > self.dims()[axis]) {
            return Err(Error::shape("narrow", format!("{start}..{start}+{len} of axis {axis} of {:?}", self.dims())));
        }
        let (layout, offset) = self.layout.narrowed(axis, start, len);
        Ok(self.with_layout(layout, offset))
    }

    /// Returns every `step`-th index of dimension `axis`, starting at the first.
    ///
    /// # Errors
    /// [`Error::Shape`] for an axis that does not exist, and for a step of 0.
    pub fn every(&self, axis: usize, step: usize) -> Result<Self> {
        self.check_axis("every", axis)?;
        if step == 0 {
            return Err(Error::shape("every", "a step of 0"));
        }
        let (mut dims, mut strides) = (self.dims().to_vec(), self.layout.strides().to_vec());
        dims[axis] = dims[axis].div_ceil(step);
        strides[axis] *= step;
        Ok(self.with_layout(Layout::strided(&dims, &strides)?, 0))
    }

    /// Returns the dimensions in their order in memory, the outermost first.
    pub(crate) fn in_memory_order(&self) -> Result<Self> {
        self.permute(&self.memory_order())
    }

    /// Axes sorted by stride, the largest first.
    pub(crate) fn memory_order(&self) -> smallvec::SmallVec<[usize; 6]> {
        let mut axes: smallvec::SmallVec<[usize; 6]> = (0..self.rank()).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(self.layout.strides()[axis]));
        axes
    }

    /// Returns index `index` of dimension `axis`, which disappears.
    ///
    /// # Errors
    /// [`Error::Shape`] if it does not exist.
    pub fn select(&self, axis: usize, index: usize) -> Result<Self> {
        let part = self.narrow(axis, index, 1)?;
        Ok(part.with_layout(part.layout.without_axis(axis), 0))
    }

    /// Repeats the elements to larger sizes, with strides of 0.
    ///
    /// # Errors
    /// [`Error::Shape`] if the sizes do not fit.
    pub fn broadcast_to(&self, dims: &[usize]) -> Result<Self> {
        Ok(self.with_layout(self.layout.broadcast_to(dims)?, 0))
    }

    /// Adds a dimension of size 1 before `axis`.
    ///
    /// # Errors
    /// [`Error::Shape`] if there would be too many.
    pub fn unsqueeze(&self, axis: usize) -> Result<Self> {
        Ok(self.with_layout(self.layout.unsqueezed(axis)?, 0))
    }

    /// Removes dimension `axis`, whose size must be 1.
    ///
    /// # Errors
    /// [`Error::Shape`] if it is not.
    pub fn squeeze(&self, axis: usize) -> Result<Self> {
        self.check_axis("squeeze", axis)?;
        if self.dims()[axis] != 1 {
            return Err(Error::shape("squeeze", format!("axis {axis} of {:?} is not 1", self.dims())));
        }
        Ok(self.with_layout(self.layout.without_axis(axis), 0))
    }

    /// Returns the same array if it is contiguous, else a contiguous copy.
    ///
    /// # Errors
    /// As [`Array::empty`] for the copy.
    pub fn contiguous(&self) -> Result<Self> {
        if self.layout.is_contiguous() {
            Ok(self.clone())
        } else {
            context::within("contiguous>clone", || self.copied())
        }
    }

    fn check_axis(&self, op: &'static str, axis: usize) -> Result<()> {
        if axis < self.rank() {
            return Ok(());
        }
        Err(Error::shape(op, format!("axis {axis} of {:?}", self.dims())))
    }
}
