//! Sizes of what transposed convolutions make.

/// Size of the result along one axis, for a window's size, its stride and dilation, the padding, and the elements that are added at the end:
/// `(size − 1)·stride + dilation·(window − 1) + 1 + more − 2·padding`. `None` if the padding leaves nothing.
pub(in crate::ops) fn transposed_size(
    size: usize,
    window: usize,
    [stride, dilation]: [usize; 2],
    padding: usize,
    more: usize,
) -> Option<usize> {
    let reach = dilation * window.saturating_sub(1) + 1 + more;
    let full = size.saturating_sub(1) * stride + reach;
    full.checked_sub(2 * padding).filter(|size| *size > 0)
}
