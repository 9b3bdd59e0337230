//! Initial gradient of the recordings.

use memcore::{Array, Result};

/// Ones with the strides of `y`, which has no gaps.
pub(crate) fn ones_like(y: &Array) -> Result<Array> {
    let mut order: Vec<usize> = (0..y.rank()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(y.layout().strides()[axis]));
    let dims: Vec<usize> = order.iter().map(|&axis| y.dims()[axis]).collect();
    let mut back = vec![0; y.rank()];
    order.iter().enumerate().for_each(|(at, &axis)| back[axis] = at);
    Array::ones(y.device(), &dims, y.dtype())?.permute(&back)
}
