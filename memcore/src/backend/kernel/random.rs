//! Random kernels: the same bits on every backend.
//!
//! The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Element `i`
//! takes word `i % 4` of the block whose key is `seed` (low word first) and whose 128-bit counter has `offset + i/4` in
//! its low 64 bits and 0 above. A kernel over `n` elements uses `⌈n/4⌉` counters.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// The value made from a random word `w`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RandomKind {
    /// The word itself, into i32 (same bits).
    Words,
    /// `low + (high − low)·u` with `u = (w >> 8)·2⁻²⁴`, computed in f32 (for f64 in f64) and then rounded to the type.
    /// The bits are the same on every backend: `low` and `high` are rounded first, then the difference, the product and
    /// the sum, each by itself.
    Uniform {
        /// Lower bound, inclusive.
        low: f64,
        /// Upper bound, exclusive up to rounding.
        high: f64,
    },
}

/// `out[i] = kind(philox(seed, offset, i))` in row-major order; `out` contiguous.
#[derive(Clone, Debug)]
pub struct Random {
    /// The values to make.
    pub kind: RandomKind,
    /// Key of the generator.
    pub seed: u64,
    /// First counter.
    pub offset: u64,
    /// Contiguous.
    pub out: Operand,
}
kernel!(Random, "random", in_place: false, [kind, seed, offset], { out: Write }, flops: |_| 0);
impl Random {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.contiguous("out", &self.out)?;
        match self.kind {
            RandomKind::Words => c.dtype("out", &self.out, DType::I32),
            RandomKind::Uniform { .. } => c.float("out", &self.out),
        }
    }
}

/// `mask[i] = u(i) ≥ p` with the uniform `u` of [`Random`] over `[0, 1)`, in f32; `out = mask ? x/(1 − p) : 0`. A
/// backend may multiply by the reciprocal instead of dividing.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Probability of dropping, `0 ≤ p ≤ 1`; at 1 everything is 0.
    pub p: f64,
    /// Key of the generator.
    pub seed: u64,
    /// First counter.
    pub offset: u64,
    /// Contiguous.
    pub x: Operand,
    /// Contiguous; 1 where an element was kept.
    pub mask: Operand,
    /// Contiguous.
    pub out: Operand,
}
kernel!(Dropout, "dropout", in_place: true, [p, seed, offset], { x: Read, mask: Write, out: Write }, flops: |k| k.out.numel() as u64);
impl Dropout {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.that((0.0..=1.0).contains(&self.p), "out", || format!("probability {}", self.p))?;
        c.float("out", &self.out)?;
        c.contiguous("out", &self.out)?;
        c.mask("mask", &self.mask)?;
        c.dense("mask", &self.mask, self.out.dims())?;
        c.dtype("x", &self.x, self.out.dtype)?;
        c.dense("x", &self.x, self.out.dims())
    }
}

/// `out = mask ? scale·grad : 0`, any strides.
#[derive(Clone, Debug)]
pub struct DropoutGrad {
    /// `1/(1 − p)`; 0 when p is 1.
    pub scale: f64,
    /// Gradient of the result.
    pub grad: Operand,
    /// The mask that forward wrote.
    pub mask: Operand,
    /// Gradient of the input.
    pub out: Operand,
}
kernel!(DropoutGrad, "dropout_grad", in_place: true, [scale], { grad: Read, mask: Read, out: Write }, flops: |k| k.out.numel() as u64);
impl DropoutGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.float("out", &self.out)?;
        c.mask("mask", &self.mask)?;
        c.dims("mask", &self.mask, self.out.dims())?;
        c.dtype("grad", &self.grad, self.out.dtype)?;
        c.dims("grad", &self.grad, self.out.dims())
    }
}
