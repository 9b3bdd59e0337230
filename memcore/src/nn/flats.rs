//! One-dimensional arrays that hold the parameters of a part of a model.

use std::cell::Cell;

use crate::array::Array;
use crate::error::Result;
use crate::layout::Layout;

/// One-dimensional arrays that parameters are views of, and the part of them that is assigned.
pub(super) struct Flats {
    arrays: Vec<Array>,
    /// Index of the array that is being filled, and the number of its elements that are assigned.
    next: Cell<(usize, usize)>,
}

impl Flats {
    /// Arrays of which nothing is assigned.
    pub(super) fn new(arrays: Vec<Array>) -> Self {
        Self { arrays, next: Cell::new((0, 0)) }
    }

    /// Returns a view for the next parameter: in the array that is being filled, or in the next one if it has no room.
    pub(super) fn part(&self, layout: &Layout) -> Result<Array> {
        let numel = layout.numel();
        let (mut index, mut start) = self.next.get();
        while self.arrays.get(index).is_some_and(|array| start + numel > array.numel()) {
            (index, start) = (index + 1, 0);
        }
        let array = self.arrays.get(index).ok_or_else(|| {
            crate::Error::shape("parameter", format!("no flat array has room for {:?}", layout.dims()))
        })?;
        self.next.set((index, start + numel));
        array.narrow(0, start, numel)?.view(layout.dims())
    }
}
