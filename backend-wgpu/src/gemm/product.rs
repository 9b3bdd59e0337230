//! A product: what is multiplied, how its operands are read, and where its results go.

use crate::choice::Sizes;
use crate::key::Variant;

pub(crate) struct Gemm {
    pub(crate) name: &'static str,
    /// What the caller's functions were generated from.
    pub(crate) variant: Variant,
    pub(crate) sizes: Sizes,
    /// Whether elements of `a` that follow each other in memory differ in `k` (else in `m`), so that neighbouring threads read them.
    pub(crate) a_along_k: bool,
    /// The same for `b` and `n`.
    pub(crate) b_along_k: bool,
    /// Whether the caller has `a_quad(z, m, k)`, and `b_quad(z, k, n)`: four elements in the direction in which the operand is read, from
    /// a multiple of four on. Sizes in that direction are multiples of four then.
    pub(crate) quads: [bool; 2],
    /// Whether it gives the same result when it runs twice.
    pub(crate) repeats: bool,
}

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feed {
    /// Element by element.
    Single,
    /// Four of the inner size at once.
    AlongK,
    /// Four rows of `a`, or columns of `b`, at once.
    Across,
}

impl Feed {
    pub(super) fn of(is_quad: bool, along_k: bool) -> Self {
        match (is_quad, along_k) {
            (false, _) => Feed::Single,
            (true, true) => Feed::AlongK,
            (true, false) => Feed::Across,
        }
    }
}

/// Where a launch puts its products.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// To the caller.
    Whole,
    /// Into the scratch, part by part.
    Parts,
    /// From the scratch to the caller.
    Join,
    /// To the caller, a thread for each element: for results too small for a tile.
    Alone,
}

impl Gemm {
    pub(super) fn feed_a(&self) -> Feed {
        Feed::of(self.quads[0], self.a_along_k)
    }

    pub(super) fn feed_b(&self) -> Feed {
        Feed::of(self.quads[1], self.b_along_k)
    }

    /// Whether the inner size ends inside a quad.
    pub(super) fn is_ragged(&self) -> bool {
        !self.sizes.k.is_multiple_of(4)
    }
}
