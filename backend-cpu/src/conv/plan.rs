//! Common form of a convolution and of the gradient for its input: each point of a grid is a sum over channels and places of a window, whose
//! elements lie in planes of a source.
//!
//! The convolution's grid is its output. The input gradient at stride `s` has a grid for each pair of remainders of the input's rows and columns
//! divided by `s`. Only some places of the window reach such a row. Seen from its grid, these places move by whole steps over the gradient.

use super::sizes::Sizes;

/// Places of a window along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taps {
    /// The window's own number of the first place, and the step to the next.
    first: usize,
    every: usize,
    /// Number of places.
    pub(super) count: usize,
    /// Grid point `g` sees element `g·step + start + t·slope` of the source through place `t`, if that element exists.
    pub(super) step: usize,
    start: isize,
    slope: isize,
}

impl Taps {
    /// Returns the places of the convolution.
    fn forward(count: usize, step: usize, padding: usize, dilation: usize) -> Self {
        Self { first: 0, every: 1, count, step, start: -(padding as isize), slope: dilation as isize }
    }

    /// Returns the places of the input gradient at rows (or columns) `remainder`, `remainder + stride`, …: those places `k` for which
    /// `remainder + padding − k·dilation` is a multiple of the stride. The quotient is the position at which the gradient is read.
    fn backward(window: usize, stride: usize, padding: usize, dilation: usize, remainder: usize) -> Self {
        let reach = (remainder + padding) as isize;
        let at = |k: usize| reach - (k * dilation) as isize;
        let fits = |k: &usize| at(*k) % stride as isize == 0;
        let Some(first) = (0..window.min(stride)).find(fits) else {
            return Self { first: 0, every: 1, count: 0, step: 1, start: 0, slope: 0 };
        };
        let every = (1..=stride).find(|every| (every * dilation).is_multiple_of(stride)).unwrap_or(stride);
        let slope = -((every * dilation / stride) as isize);
        Self {
            first,
            every,
            count: (window - first).div_ceil(every),
            step: 1,
            start: at(first) / stride as isize,
            slope,
        }
    }

    /// Returns the window's own number of place `t`.
    pub(super) fn place(&self, t: usize) -> usize {
        self.first + t * self.every
    }

    /// Returns the offset that place `t` adds to a grid point's position in the source.
    pub(super) fn offset(&self, t: usize) -> isize {
        self.start + t as isize * self.slope
    }

    /// Returns `count` places that see neighbouring elements, from offset `start` on. Grid points lie `step` elements apart.
    fn side_by_side(count: usize, step: usize, start: isize) -> Self {
        Self { first: 0, every: 1, count, step, start, slope: 1 }
    }

    /// True if each grid point sees three neighbouring elements of the source, and neighbouring grid points lie one element apart.
    fn three_neighbours(&self) -> bool {
        self.count == 3 && self.step == 1 && self.every == 1 && self.slope.abs() == 1
    }

    /// Returns the window's own number of the place with the `i`-th smallest offset.
    pub(super) fn in_order(&self, i: usize) -> usize {
        self.place(if self.slope < 0 { self.count - 1 - i } else { i })
    }

    /// Returns the smallest offset, and the distance from it to the largest.
    pub(super) fn reach(&self) -> (isize, usize) {
        let last = self.offset(self.count.saturating_sub(1));
        (self.start.min(last), self.start.abs_diff(last))
    }
}

/// Computation for each image and group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Planes of the source in one group.
    pub(super) channels: usize,
    /// Planes of the target in one group.
    pub(super) outputs: usize,
    /// Size of the source's planes.
    pub(super) source: [usize; 2],
    pub(super) grid: [usize; 2],
    pub(super) taps: [Taps; 2],
    /// Size of the target's planes; position of the grid's first point in them; steps to the next point.
    pub(super) target: [usize; 2],
    pub(super) first: [usize; 2],
    pub(super) every: [usize; 2],
    /// Steps in the weight, in elements: to the next output, channel, row and group.
    pub(super) weight: [usize; 4],
}

impl Plan {
    /// Returns the plan of the convolution itself.
    pub(super) fn forward(s: &Sizes) -> Self {
        let g = &s.geometry;
        let taps = |axis: usize| Taps::forward(s.window[axis], g.stride[axis], g.padding[axis], g.dilation[axis]);
        Self {
            images: s.images,
            groups: s.groups,
            channels: s.channels,
            outputs: s.outputs,
            source: s.input,
            grid: s.output,
            taps: [taps(0), taps(1)],
            target: s.output,
            first: [0, 0],
            every: [1, 1],
            weight: [s.patch(), s.window[0] * s.window[1], s.window[1], s.outputs * s.patch()],
        }
    }

    /// Returns the plan of the input gradient at rows and columns with these remainders.
    pub(super) fn input_grad(s: &Sizes, remainder: [usize; 2]) -> Self {
        let g = &s.geometry;
        let taps = |a: usize| Taps::backward(s.window[a], g.stride[a], g.padding[a], g.dilation[a], remainder[a]);
        let points = |a: usize| s.input[a].saturating_sub(remainder[a]).div_ceil(g.stride[a]);
        Self {
            images: s.images,
            groups: s.groups,
            channels: s.outputs,
            outputs: s.channels,
            source: s.output,
            grid: [points(0), points(1)],
            taps: [taps(0), taps(1)],
            target: s.input,
            first: remainder,
            every: g.stride,
            weight: [s.window[0] * s.window[1], s.patch(), s.window[1], s.outputs * s.patch()],
        }
    }

    /// Returns a plan whose grid points are blocks of 2 × 2 points, each of which sees 4 × 4 neighbours. `None` unless windows are 3 × 3 neighbours.
    pub(super) fn blocks(&self) -> Option<Self> {
        let fits = self.taps.iter().all(Taps::three_neighbours) && self.every == [1, 1] && self.grid == self.target;
        let grid = self.grid.map(|points| points.div_ceil(2));
        fits.then(|| Self { grid, taps: self.taps.map(|taps| Taps::side_by_side(4, 2, taps.reach().0)), ..*self })
    }

    /// Returns a plan whose grid points are blocks of 2 × 2 points, each of which sees these points themselves. The target's planes are its source.
    pub(super) fn points_of_blocks(&self) -> Self {
        let grid = self.grid.map(|points| points.div_ceil(2));
        Self { channels: self.outputs, source: self.target, grid, taps: [Taps::side_by_side(2, 2, 0); 2], ..*self }
    }

    /// Returns the number of points of the grid.
    pub(super) fn points(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Returns the number of places of the window.
    pub(super) fn places(&self) -> usize {
        self.taps[0].count * self.taps[1].count
    }

    /// Returns the row and column of place `t` in the window.
    pub(super) fn place(&self, t: usize) -> [usize; 2] {
        let across = self.taps[1].count;
        [self.taps[0].place(t / across), self.taps[1].place(t % across)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pair of an input row and a window's row that meet in an output row must be in exactly one grid.
    #[test]
    fn grids_of_the_gradient_are_the_convolution_turned_round() {
        for (input, window, stride, padding, dilation) in [
            (9, 3, 1, 1, 1),
            (9, 3, 2, 1, 1),
            (11, 3, 2, 2, 3),
            (12, 3, 4, 1, 2),
            (7, 1, 2, 0, 1),
            (5, 2, 3, 0, 1),
            (14, 7, 2, 3, 1),
            (9, 4, 6, 2, 4),
        ] {
            let output = (input + 2 * padding - dilation * (window - 1) - 1) / stride + 1;
            let mut want = Vec::new();
            let forward = Taps::forward(window, stride, padding, dilation);
            for (o, k) in (0..output).flat_map(|o| (0..window).map(move |k| (o, k))) {
                let i = (o * stride) as isize + forward.offset(k);
                if (0..input as isize).contains(&i) {
                    want.push((i as usize, k, o));
                }
            }
            let mut got = Vec::new();
            for remainder in 0..stride.min(input) {
                let taps = Taps::backward(window, stride, padding, dilation, remainder);
                for (g, t) in
                    (0..(input - remainder).div_ceil(stride)).flat_map(|g| (0..taps.count).map(move |t| (g, t)))
                {
                    let o = g as isize + taps.offset(t);
                    if (0..output as isize).contains(&o) {
                        got.push((remainder + g * stride, taps.place(t), o as usize));
                    }
                }
            }
            want.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, want, "{input} {window} {stride} {padding} {dilation}");
        }
    }
}
