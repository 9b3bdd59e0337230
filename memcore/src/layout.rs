//! Shapes and strides, stored inline and `Copy`, so that a kernel call allocates nothing to describe itself.

use std::fmt;

use crate::error::{Error, Result};

/// The largest number of dimensions a tensor can have.
pub const MAX_RANK: usize = 6;

/// The positions of a view's elements relative to its first one: sizes and strides, in elements.
///
/// Strides are never negative; a stride of 0 repeats an element (a broadcast).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    rank: u8,
    dims: [usize; MAX_RANK],
    strides: [usize; MAX_RANK],
}

impl Layout {
    /// Row-major layout of `dims`.
    ///
    /// # Errors
    /// [`Error::Shape`] for more than [`MAX_RANK`] dimensions or more than 2^60 elements.
    pub fn contiguous(dims: &[usize]) -> Result<Self> {
        if dims.len() > MAX_RANK {
            return Err(Error::shape("layout", format!("{} dimensions, at most {MAX_RANK} are supported", dims.len())));
        }
        let mut layout = Self { rank: dims.len() as u8, dims: [1; MAX_RANK], strides: [0; MAX_RANK] };
        let mut stride = 1usize;
        for i in (0..dims.len()).rev() {
            layout.dims[i] = dims[i];
            layout.strides[i] = stride;
            stride = stride
                .checked_mul(dims[i].max(1))
                .filter(|n| *n < 1 << 60)
                .ok_or_else(|| Error::shape("layout", format!("{dims:?} has too many elements")))?;
        }
        Ok(layout)
    }

    /// The layout of a scalar: no dimensions, one element.
    pub const fn scalar() -> Self {
        Self { rank: 0, dims: [1; MAX_RANK], strides: [0; MAX_RANK] }
    }

    /// Creates a layout from sizes and strides of equal length.
    ///
    /// # Errors
    /// [`Error::Shape`] when the lengths differ or exceed [`MAX_RANK`].
    pub fn strided(dims: &[usize], strides: &[usize]) -> Result<Self> {
        if dims.len() != strides.len() || dims.len() > MAX_RANK {
            return Err(Error::shape("layout", format!("dims {dims:?} with strides {strides:?}")));
        }
        let mut layout = Self { rank: dims.len() as u8, dims: [1; MAX_RANK], strides: [0; MAX_RANK] };
        layout.dims[..dims.len()].copy_from_slice(dims);
        layout.strides[..dims.len()].copy_from_slice(strides);
        Ok(layout)
    }

    /// Number of dimensions.
    pub const fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }

    /// Strides in elements, outermost first.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.rank()]
    }

    /// Number of elements; 1 for a scalar, 0 when any size is 0.
    pub fn numel(&self) -> usize {
        self.dims().iter().product()
    }

    /// Number of elements from the first to one past the last that the view touches; 0 for an empty view.
    pub fn span(&self) -> usize {
        if self.numel() == 0 {
            return 0;
        }
        1 + self.dims().iter().zip(self.strides()).map(|(d, s)| (d - 1) * s).sum::<usize>()
    }

    /// True if the elements are in row-major order without gaps. Dimensions of size 1 do not matter, as in PyTorch.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (d, s) in self.dims().iter().zip(self.strides()).rev() {
            if *d == 0 {
                return true;
            }
            if *d != 1 {
                if *s != expected {
                    return false;
                }
                expected *= d;
            }
        }
        true
    }

    /// True if two different indices name the same element (a stride of 0 for a size above 1).
    pub fn is_broadcast(&self) -> bool {
        self.dims().iter().zip(self.strides()).any(|(d, s)| *d > 1 && *s == 0)
    }

    /// True if the elements fill their span exactly once, in any order of the dimensions.
    pub(crate) fn is_dense(&self) -> bool {
        !self.is_broadcast() && self.span() == self.numel()
    }

    /// True if both have their elements in one order without gaps. Dimensions of size 1 do not matter.
    pub(crate) fn has_order_of(&self, other: &Self) -> bool {
        let strides = self.strides().iter().zip(other.strides());
        self.is_dense() && self.dims().iter().zip(strides).all(|(size, (own, wanted))| *size == 1 || own == wanted)
    }

    /// True if a gradient of this layout may belong to a value of the other one: its strides are those of the value, or in row-major order for a
    /// value with gaps (PyTorch's `obeys_layout_contract`). Dimensions of size 1 do not matter.
    pub(crate) fn suits(&self, value: &Self) -> bool {
        if !value.is_dense() {
            return self.is_contiguous();
        }
        let strides = self.strides().iter().zip(value.strides());
        self.dims().iter().zip(strides).all(|(size, (own, wanted))| *size == 1 || own == wanted)
    }

    /// Exchanges dimensions `a` and `b`. Both must be below the rank.
    #[must_use]
    pub fn transposed(mut self, a: usize, b: usize) -> Self {
        self.dims[..self.rank as usize].swap(a, b);
        self.strides[..self.rank as usize].swap(a, b);
        self
    }

    /// Reorders the dimensions to the order of `axes`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `axes` is not a permutation of the dimensions.
    pub fn permuted(&self, axes: &[usize]) -> Result<Self> {
        let mut seen = [false; MAX_RANK];
        let valid = axes.len() == self.rank()
            && axes.iter().all(|&a| a < self.rank() && !std::mem::replace(&mut seen[a], true));
        if !valid {
            return Err(Error::shape(
                "permute",
                format!("{axes:?} is not a permutation of the {} dimensions", self.rank()),
            ));
        }
        let mut out = *self;
        for (i, &a) in axes.iter().enumerate() {
            out.dims[i] = self.dims[a];
            out.strides[i] = self.strides[a];
        }
        Ok(out)
    }

    /// Broadcasts this layout to `dims`: sizes of 1 (and missing leading sizes) repeat with stride 0.
    ///
    /// # Errors
    /// [`Error::Shape`] when a size is neither equal nor 1.
    pub fn broadcast_to(&self, dims: &[usize]) -> Result<Self> {
        let fail = || Error::shape("broadcast", format!("{:?} cannot be broadcast to {dims:?}", self.dims()));
        if dims.len() < self.rank() || dims.len() > MAX_RANK {
            return Err(fail());
        }
        let lead = dims.len() - self.rank();
        let mut out = Self { rank: dims.len() as u8, dims: [1; MAX_RANK], strides: [0; MAX_RANK] };
        for (i, &want) in dims.iter().enumerate() {
            out.dims[i] = want;
            if i >= lead {
                let have = self.dims[i - lead];
                if have == want {
                    out.strides[i] = self.strides[i - lead];
                } else if have != 1 {
                    return Err(fail());
                }
            }
        }
        Ok(out)
    }

    /// Views these elements with other sizes, without moving any; `None` if the strides do not allow it (PyTorch's rule
    /// for `view`). The element counts must be equal.
    pub fn viewed(&self, dims: &[usize]) -> Option<Self> {
        let target = Self::contiguous(dims).ok()?;
        if target.numel() != self.numel() {
            return None;
        }
        if self.is_contiguous() || self.numel() == 0 {
            return Some(target);
        }
        // Old dimensions are grouped into runs that are contiguous among themselves; whole new dimensions must cover
        // each run.
        let mut out = target;
        let (mut new_axis, mut old_axis) = (dims.len(), self.rank());
        while old_axis > 0 {
            let base = self.strides[old_axis - 1];
            let mut run = self.dims[old_axis - 1];
            old_axis -= 1;
            while old_axis > 0 && (self.dims[old_axis - 1] == 1 || self.strides[old_axis - 1] == run * base) {
                run *= self.dims[old_axis - 1];
                old_axis -= 1;
            }
            let mut covered = 1;
            while new_axis > 0 && (covered < run || dims[new_axis - 1] == 1) {
                out.strides[new_axis - 1] = covered * base;
                covered *= dims[new_axis - 1];
                new_axis -= 1;
            }
            if covered != run {
                return None;
            }
        }
        Some(out)
    }

    /// Returns the part `start..start + len` of dimension `axis`, and the offset of its first element, in elements.
    /// `axis` must be below the rank and the part inside the dimension.
    pub fn narrowed(mut self, axis: usize, start: usize, len: usize) -> (Self, usize) {
        let offset = start * self.strides[axis];
        self.dims[axis] = len;
        (self, offset)
    }

    /// True if the strides of `[n, c, h, w]` suggest channels-last (PyTorch's `suggest_memory_format`). Gaps are
    /// allowed. If sizes of 1 make the strides ambiguous, the answer is false.
    pub(crate) fn is_channels_last(&self) -> bool {
        let (&[n, c, h, w], &[outer, channel, row, column]) = (self.dims(), self.strides()) else { return false };
        let mut least = 0;
        for (size, stride) in [(c, channel), (w, column), (h, row)] {
            if size == 0 || stride < least {
                return false;
            }
            least = stride * size;
        }
        channel != 0 && n != 0 && outer >= least && least != channel
    }

    /// Returns the layout of an elementwise result with sizes `dims`, given its operands broadcast to `dims`. It has no
    /// gaps, and its dimensions are in the order that the operands' strides suggest; the first operand decides first
    /// (PyTorch's `TensorIterator`).
    pub fn elementwise(dims: &[usize], operands: &[&Layout]) -> Result<Self> {
        let out = Self::contiguous(dims)?;
        // Contiguous operands of one shape decide the order of dimensions of size 1 as well. A broadcast operand has
        // strides of 0 and does not.
        if operands.iter().all(|operand| operand.is_contiguous() && !operand.strides().contains(&0)) {
            return Ok(out);
        }
        // Insertion sort of the dimensions from the innermost out. The comparison may be ambiguous, so another sort
        // would give another order.
        let mut order: arrayvec::ArrayVec<usize, MAX_RANK> = (0..dims.len()).rev().collect();
        for i in 1..order.len() {
            let mut moving = i;
            for inner in (0..i).rev() {
                match out.suggested(operands, order[inner], order[moving]) {
                    std::cmp::Ordering::Greater => {
                        order.swap(inner, moving);
                        moving = inner;
                    }
                    std::cmp::Ordering::Less => break,
                    std::cmp::Ordering::Equal => {}
                }
            }
        }
        let (mut strides, mut stride) = ([0; MAX_RANK], 1);
        for &axis in &order {
            strides[axis] = stride;
            stride *= dims[axis].max(1);
        }
        Ok(Self { strides, ..out })
    }

    /// Compares the operands' strides: `Greater` if dimension `a` belongs outside of `b`, `Less` if inside. A broadcast
    /// dimension does not count.
    fn suggested(&self, operands: &[&Layout], a: usize, b: usize) -> std::cmp::Ordering {
        for operand in operands {
            match (operand.strides[a], operand.strides[b]) {
                (0, _) | (_, 0) => {}
                (x, y) if x != y => return x.cmp(&y),
                _ if self.dims[a] > self.dims[b] => return std::cmp::Ordering::Greater,
                _ => {}
            }
        }
        std::cmp::Ordering::Equal
    }

    /// Inserts a dimension of size 1 before `axis` (`axis` ≤ rank < [`MAX_RANK`]).
    ///
    /// # Errors
    /// [`Error::Shape`] when the rank would exceed [`MAX_RANK`].
    pub(crate) fn unsqueezed(&self, axis: usize) -> Result<Self> {
        let mut dims: arrayvec::ArrayVec<usize, MAX_RANK> = self.dims().iter().copied().collect();
        let mut strides: arrayvec::ArrayVec<usize, MAX_RANK> = self.strides().iter().copied().collect();
        if dims.is_full() || axis > dims.len() {
            return Err(Error::shape("unsqueeze", format!("axis {axis} of {:?}", self.dims())));
        }
        let stride = if axis < dims.len() { dims[axis] * strides[axis] } else { 1 };
        dims.insert(axis, 1);
        strides.insert(axis, stride);
        Self::strided(&dims, &strides)
    }

    /// Removes dimension `axis` at index 0; `axis` must be below the rank.
    #[must_use]
    pub(crate) fn without_axis(mut self, axis: usize) -> Self {
        let rank = self.rank();
        self.dims.copy_within(axis + 1..rank, axis);
        self.strides.copy_within(axis + 1..rank, axis);
        self.dims[rank - 1] = 1;
        self.strides[rank - 1] = 0;
        self.rank -= 1;
        self
    }
}

/// The shape that `a` and `b` broadcast to, by NumPy's and PyTorch's rule.
///
/// # Errors
/// [`Error::Shape`] with both shapes if they do not fit.
pub fn broadcast_dims(a: &[usize], b: &[usize]) -> Result<arrayvec::ArrayVec<usize, MAX_RANK>> {
    let rank = a.len().max(b.len());
    let mut out = arrayvec::ArrayVec::new();
    for i in 0..rank {
        let x = if i + a.len() >= rank { a[i + a.len() - rank] } else { 1 };
        let y = if i + b.len() >= rank { b[i + b.len() - rank] } else { 1 };
        if x != y && x != 1 && y != 1 {
            return Err(Error::shape("broadcast", format!("{a:?} and {b:?} do not fit together")));
        }
        out.push(if x == 1 { y } else { x });
    }
    Ok(out)
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_contiguous() {
            write!(f, "{:?}", self.dims())
        } else {
            write!(f, "{:?}/{:?}", self.dims(), self.strides())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_follows_strides() {
        let l = Layout::contiguous(&[2, 3, 4]).unwrap().transposed(0, 1);
        assert_eq!(l.dims(), [3, 2, 4]);
        assert_eq!(l.viewed(&[6, 4]), None);
        assert_eq!(l.viewed(&[3, 8]), None);
        assert_eq!(l.viewed(&[3, 2, 2, 2]).unwrap().strides(), [4, 12, 2, 1]);
        assert!(Layout::contiguous(&[4, 6]).unwrap().viewed(&[24]).unwrap().is_contiguous());
    }

    #[test]
    fn broadcast_repeats_with_stride_zero() {
        let l = Layout::contiguous(&[3, 1]).unwrap().broadcast_to(&[2, 3, 5]).unwrap();
        assert_eq!(l.strides(), [0, 1, 0]);
        assert!(l.is_broadcast() && !l.is_dense());
        assert!(Layout::contiguous(&[3]).unwrap().broadcast_to(&[4]).is_err());
        assert_eq!(broadcast_dims(&[3, 1], &[4]).unwrap().as_slice(), [3, 4]);
    }

    #[test]
    fn channels_lie_innermost_where_strides_say_so() {
        let last = |dims: [usize; 4]| {
            let [n, c, h, w] = dims;
            Layout::contiguous(&[n, h, w, c]).unwrap().permuted(&[0, 3, 1, 2]).unwrap()
        };
        for dims in [[2, 3, 4, 5], [1, 3, 1, 1], [2, 3, 1, 1], [1, 3, 4, 1]] {
            assert!(last(dims).is_channels_last(), "{dims:?}");
            assert!(!Layout::contiguous(&dims).unwrap().is_channels_last(), "{dims:?}");
        }
        for dims in [[2, 1, 1, 1], [0, 3, 4, 5], [2, 3, 0, 5]] {
            assert!(!last(dims).is_channels_last(), "{dims:?}");
        }
        assert!(!Layout::contiguous(&[3, 4, 5]).unwrap().is_channels_last());
        // An operand of another rank prevents the shortcut for contiguous operands: the dimensions of size 1 follow the
        // picture's strides.
        let (picture, scale) = (last([1, 3, 1, 1]), Layout::contiguous(&[3, 1, 1]).unwrap());
        let scale = scale.broadcast_to(picture.dims()).unwrap();
        assert!(Layout::elementwise(&[1, 3, 1, 1], &[&scale, &picture]).unwrap().is_channels_last());
        assert!(!Layout::elementwise(&[1, 3, 1, 1], &[&picture, &picture]).unwrap().is_channels_last());
    }

    #[test]
    fn elementwise_results_keep_the_order_of_the_strides() {
        let plain = Layout::contiguous(&[2, 3, 4]).unwrap();
        let turned = Layout::contiguous(&[2, 4, 3]).unwrap().transposed(1, 2);
        let dims = [2, 3, 4];
        assert_eq!(Layout::elementwise(&dims, &[&plain, &plain]).unwrap(), plain);
        assert_eq!(Layout::elementwise(&dims, &[&turned]).unwrap().strides(), [12, 1, 3]);
        assert_eq!(Layout::elementwise(&dims, &[&turned, &plain]).unwrap().strides(), [12, 1, 3]);
        assert_eq!(Layout::elementwise(&dims, &[&plain, &turned]).unwrap().strides(), [12, 4, 1]);
        let spread = Layout::contiguous(&[1, 1, 4]).unwrap().broadcast_to(&dims).unwrap();
        assert_eq!(Layout::elementwise(&dims, &[&spread, &turned]).unwrap().strides(), [12, 1, 3]);
        // A part of a row, transposed: the result has no gaps.
        let part = Layout::contiguous(&[2, 4, 9]).unwrap().narrowed(2, 3, 3).0.transposed(1, 2);
        assert_eq!(Layout::elementwise(&dims, &[&part]).unwrap().strides(), [12, 1, 3]);
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert!(Layout::contiguous(&[usize::MAX, 2]).is_err());
        assert!(Layout::contiguous(&[1; 7]).is_err());
        assert_eq!(Layout::contiguous(&[0, 5]).unwrap().span(), 0);
    }
}
