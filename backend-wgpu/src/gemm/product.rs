//! A product: its sizes, and how its operands are read and its results stored.

use crate::choice::Sizes;
use crate::key::Variant;

pub(crate) struct Gemm {
    pub(crate) name: &'static str,
    /// The variant from which the caller's functions were generated.
    pub(crate) variant: Variant,
    pub(crate) sizes: Sizes,
    /// True if adjacent elements of `a` in memory differ in `k`, false if in `m`. Neighbouring threads read adjacent
    /// elements.
    pub(crate) a_along_k: bool,
    /// True if adjacent elements of `b` differ in `k`, false if in `n`.
    pub(crate) b_along_k: bool,
    /// Whether the caller has `a_quad(z, m, k)` and `b_quad(z, k, n)`. They return four elements in the direction in
    /// which the operand is read, from a multiple of four on. Sizes in that direction are then multiples of four.
    pub(crate) quads: [bool; 2],
    /// True if running it twice gives the same result.
    pub(crate) repeats: bool,
    /// The digits of `k` and `n`, if the caller's functions take those instead of the indices.
    pub(crate) digits: Option<Digits>,
}

/// Indices of an inner or a result's axis that stand for three: an image's pixel, or a window's place in a channel.
/// Threads count them up digit by digit, so that nothing is divided for each element. `a_value`, `a_quad` and `b_value`
/// take such an index as `vec3<u32>`, the lowest digit last; `store` takes the index.
#[derive(Clone, Copy)]
pub(crate) struct Digits {
    /// WGSL for the limits of the lower two digits of `k`.
    pub(crate) k: &'static str,
    /// The same for `n`.
    pub(crate) n: &'static str,
    /// True if `a_value` and `a_quad` take the digits of `k`, too.
    pub(crate) in_a: bool,
}

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feed {
    /// One element at a time.
    Single,
    /// Four elements along the inner size at a time.
    AlongK,
    /// Four rows of `a`, or four columns of `b`, at a time.
    Across,
}

impl Feed {
    pub(super) fn from_layout(is_quad: bool, along_k: bool) -> Self {
        match (is_quad, along_k) {
            (false, _) => Feed::Single,
            (true, true) => Feed::AlongK,
            (true, false) => Feed::Across,
        }
    }
}

/// Source and destination of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Writes results through the caller's `store`.
    Whole,
    /// Writes parts to the scratch.
    Parts,
    /// Adds parts from the scratch and writes results through the caller's `store`.
    Join,
    /// Writes results through the caller's `store`, one thread per element: for results too small for a tile.
    Alone,
}

impl Gemm {
    pub(super) fn feed_a(&self) -> Feed {
        Feed::from_layout(self.quads[0], self.a_along_k)
    }

    pub(super) fn feed_b(&self) -> Feed {
        Feed::from_layout(self.quads[1], self.b_along_k)
    }

    /// True if the inner size ends inside a quad.
    pub(super) fn is_ragged(&self) -> bool {
        !self.sizes.k.is_multiple_of(4)
    }
}
