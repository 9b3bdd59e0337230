//! Fusion: a pointwise launch waits for the next call, and a unary function of its result in place becomes a part of
//! it.
//!
//! `relu_(a + b)` in two kernels writes the sum, reads it and writes it again; in one it is never in memory.

use memcore::backend::kernel::{Binary, Unary, UnaryOp};
use memcore::backend::{KernelCall, Operand};
use memcore::error::Result;

use crate::elementwise;
use crate::job::Context;

/// A launch that was accepted but not yet recorded.
pub(crate) struct PendingLaunch {
    first: First,
    then: Option<UnaryOp>,
}

/// A call that may wait. Only the struct of the call itself is kept: a whole `KernelCall` is several times as large.
enum First {
    Unary(Unary),
    Binary(Binary),
}

impl PendingLaunch {
    /// Makes a pending launch, if another function may be fused into it: it must be a function of floats that gives
    /// floats.
    pub(crate) fn from_call(call: &KernelCall) -> Option<Self> {
        let first = match call {
            KernelCall::Unary(k) if k.out.dtype.is_float() => First::Unary(k.clone()),
            KernelCall::Binary(k) if k.out.dtype.is_float() => First::Binary(k.clone()),
            _ => return None,
        };
        Some(Self { first, then: None })
    }

    /// Fuses the next call if it is a function of exactly the pending launch's result, in place. Returns whether it
    /// did.
    pub(crate) fn merge(&mut self, next: &KernelCall) -> bool {
        let KernelCall::Unary(k) = next else { return false };
        let fits = self.then.is_none() && k.out == *self.out() && k.x == k.out;
        if fits {
            self.then = Some(k.op);
        }
        fits
    }

    pub(crate) fn record(&self, cx: &mut Context<'_>) -> Result<()> {
        let then = self.then.map(elementwise::then);
        match &self.first {
            First::Unary(k) => elementwise::unary_then(cx, k, then),
            First::Binary(k) => elementwise::binary_then(cx, k, then),
        }
    }

    fn out(&self) -> &Operand {
        match &self.first {
            First::Unary(k) => &k.out,
            First::Binary(k) => &k.out,
        }
    }
}
