//! A convolution and the gradient for its input as one thing: points of a grid, each a sum over channels and places of a window of what lies in planes of
//! a source.
//!
//! The convolution's grid is its output. The input gradient of a stride `s` has a grid for each remainder of the input's rows and columns divided by
//! `s`: of the window's places, only some reach such a row, and seen from its grid they move by whole steps over the gradient.

use super::sizes::Sizes;

/// Places of a window along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taps {
    /// The window's own number of the first of them, and from one to the next.
    first: usize,
    every: usize,
    /// How many there are.
    pub(super) count: usize,
    /// Grid point `g` sees element `g·step + start + t·slope` of the source through place `t`, if it exists.
    pub(super) step: usize,
    start: isize,
    slope: isize,
}

impl Taps {
    /// Of the convolution.
    fn forward(count: usize, step: usize, padding: usize, dilation: usize) -> Self {
        Self { first: 0, every: 1, count, step, start: -(padding as isize), slope: dilation as isize }
    }

    /// Of the input gradient at rows (or columns) `remainder`, `remainder + stride`, …: those places `k` for which
    /// `remainder + padding − k·dilation` is a multiple of the stride; its quotient is where the gradient is read.
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

    /// The window's own number of place `t`.
    pub(super) fn place(&self, t: usize) -> usize {
        self.first + t * self.every
    }

    /// What place `t` adds to a grid point's position in the source.
    pub(super) fn offset(&self, t: usize) -> isize {
        self.start + t as isize * self.slope
    }

    /// Places that lie side by side, `step` grid points apart.
    fn side_by_side(count: usize, step: usize, start: isize) -> Self {
        Self { first: 0, every: 1, count, step, start, slope: 1 }
    }

    /// Whether three neighbouring elements of the source are seen from each grid point, which are neighbours too.
    fn three_neighbours(&self) -> bool {
        self.count == 3 && self.step == 1 && self.every == 1 && self.slope.abs() == 1
    }

    /// The window's own number of the place with the `i`-th offset, from the least on.
    pub(super) fn in_order(&self, i: usize) -> usize {
        self.place(if self.slope < 0 { self.count - 1 - i } else { i })
    }

    /// The least offset, and how far the largest is from it.
    pub(super) fn reach(&self) -> (isize, usize) {
        let last = self.offset(self.count.saturating_sub(1));
        (self.start.min(last), self.start.abs_diff(last))
    }
}

/// What is computed for each image and group.
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
    /// Size of the target's planes; the grid's first point in them, and the steps to the next.
    pub(super) target: [usize; 2],
    pub(super) first: [usize; 2],
    pub(super) every: [usize; 2],
    /// Steps in the weight: from one output to the next, from one channel, row and group.
    pub(super) weight: [usize; 4],
}

impl Plan {
    /// The convolution itself.
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

    /// The input gradient at rows and columns that leave these remainders.
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

    /// What blocks of 2 × 2 points see, a point of the new grid each: 4 × 4 neighbours. Only of windows of 3 × 3 neighbours.
    pub(super) fn blocks(&self) -> Option<Self> {
        let fits = self.taps.iter().all(Taps::three_neighbours) && self.every == [1, 1] && self.grid == self.target;
        let grid = self.grid.map(|points| points.div_ceil(2));
        fits.then(|| Self { grid, taps: self.taps.map(|taps| Taps::side_by_side(4, 2, taps.reach().0)), ..*self })
    }

    /// The points themselves of blocks of 2 × 2, with planes of the target as the source.
    pub(super) fn points_of_blocks(&self) -> Self {
        let grid = self.grid.map(|points| points.div_ceil(2));
        Self { channels: self.outputs, source: self.target, grid, taps: [Taps::side_by_side(2, 2, 0); 2], ..*self }
    }

    /// Points of the grid.
    pub(super) fn points(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Places of the window.
    pub(super) fn places(&self) -> usize {
        self.taps[0].count * self.taps[1].count
    }

    /// Where place `t` lies in the window: its row and column there.
    pub(super) fn place(&self, t: usize) -> [usize; 2] {
        let across = self.taps[1].count;
        [self.taps[0].place(t / across), self.taps[1].place(t % across)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pair of an input row and a window's row that meet in an output row is in exactly one grid.
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
