//! Gathering tiles of the matrix of patches, and adding tiles of its gradient back.

use std::ops::Range;

use super::Sizes;
use crate::element::{Float, Real};

/// Where row `k` of the matrix of patches comes from: channel and position in the window.
fn position(sizes: &Sizes, k: usize) -> (usize, [usize; 2]) {
    let [kh, kw] = sizes.window;
    (k / (kh * kw), [k / kw % kh, k % kw])
}

/// The output columns `x` of a row for which `x·stride + offset − padding` lies inside the input.
fn inside(out: Range<usize>, stride: usize, offset: usize, padding: usize, size: usize) -> Range<usize> {
    let first = padding.saturating_sub(offset).div_ceil(stride);
    let last = match (size + padding).checked_sub(offset) {
        Some(room) if room > 0 => (room - 1) / stride + 1,
        _ => 0,
    };
    let start = first.clamp(out.start, out.end);
    start..last.clamp(start, out.end)
}

/// Calls `row(tile columns, output columns inside the input, input index of the first of those)` for each piece of an output row that the pixels
/// `pixels` cover, in order, for the window position `at`. Pieces outside the input have no columns inside.
fn for_each_row(
    sizes: &Sizes,
    at: [usize; 2],
    pixels: Range<usize>,
    mut row: impl FnMut(Range<usize>, Range<usize>, usize, usize),
) {
    let g = &sizes.geometry;
    let width = sizes.output[1];
    let (dy, dx) = (at[0] * g.dilation[0], at[1] * g.dilation[1]);
    let mut p = pixels.start;
    while p < pixels.end {
        let (oy, ox) = (p / width, p % width);
        let end = (p - ox + width).min(pixels.end);
        let columns = ox..ox + (end - p);
        let iy = oy * g.stride[0] + dy;
        let covered = if iy < g.padding[0] || iy - g.padding[0] >= sizes.input[0] {
            columns.start..columns.start
        } else {
            inside(columns.clone(), g.stride[1], dx, g.padding[1], sizes.input[1])
        };
        let first = if covered.is_empty() {
            0
        } else {
            (iy - g.padding[0]) * sizes.input[1] + covered.start * g.stride[1] + dx - g.padding[1]
        };
        let tile = p - pixels.start;
        row(tile..tile + columns.len(), covered.start - ox..covered.end - ox, first, g.stride[1]);
        p = end;
    }
}

/// Gathers rows `rows` and columns `pixels` of the matrix of patches of one group of an image into `tile`, row by row.
///
/// `image` holds the group's planes.
pub(super) fn gather<T: Float>(
    sizes: &Sizes,
    image: &[T],
    rows: Range<usize>,
    pixels: Range<usize>,
    tile: &mut [T::Compute],
) {
    let len = pixels.len();
    let zero = T::Compute::default();
    for (k, to) in rows.zip(tile.chunks_exact_mut(len)) {
        let (channel, at) = position(sizes, k);
        let plane = &image[channel * sizes.input_pixels()..][..sizes.input_pixels()];
        for_each_row(sizes, at, pixels.clone(), |tile, covered, first, stride| {
            let to = &mut to[tile];
            to[..covered.start].fill(zero);
            to[covered.end..].fill(zero);
            let to = &mut to[covered];
            if stride == 1 {
                to.iter_mut().zip(&plane[first..]).for_each(|(to, &x)| *to = x.get());
            } else {
                to.iter_mut().zip(plane[first..].iter().step_by(stride)).for_each(|(to, &x)| *to = x.get());
            }
        });
    }
}

/// Adds a tile of the gradient of the matrix of patches to the gradient of the planes `planes` (in the compute type), which begin with the channel
/// of row 0 of `rows`' numbering.
pub(super) fn scatter<R: Real>(sizes: &Sizes, planes: &mut [R], rows: Range<usize>, pixels: Range<usize>, tile: &[R]) {
    let len = pixels.len();
    for (k, from) in rows.zip(tile.chunks_exact(len)) {
        let (channel, at) = position(sizes, k);
        let plane = &mut planes[channel * sizes.input_pixels()..][..sizes.input_pixels()];
        for_each_row(sizes, at, pixels.clone(), |tile, covered, first, stride| {
            let from = &from[tile][covered];
            if stride == 1 {
                plane[first..].iter_mut().zip(from).for_each(|(to, &g)| *to = *to + g);
            } else {
                plane[first..].iter_mut().step_by(stride).zip(from).for_each(|(to, &g)| *to = *to + g);
            }
        });
    }
}
