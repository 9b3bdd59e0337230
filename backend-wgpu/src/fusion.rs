//! A pointwise launch that waits for the next call: a function of its results in their own place becomes a part of it.
//!
//! `relu_(a + b)` in two kernels writes the sum, reads it and writes it again; in one it is never in memory.

use memcore::backend::kernel::{Binary, Unary, UnaryOp};
use memcore::backend::{KernelCall, Operand};
use memcore::error::Result;

use crate::elementwise;
use crate::job::Context;

/// A launch that was accepted and not recorded.
pub(crate) struct PendingLaunch {
    first: First,
    then: Option<UnaryOp>,
}

/// What may wait, by itself: a whole call is several times as large.
enum First {
    Unary(Unary),
    Binary(Binary),
}

impl PendingLaunch {
    /// The launch, where something may follow in it: a function of floats that gives floats.
    pub(crate) fn of(call: &KernelCall) -> Option<Self> {
        let first = match call {
            KernelCall::Unary(k) if k.out.dtype.is_float() => First::Unary(k.clone()),
            KernelCall::Binary(k) if k.out.dtype.is_float() => First::Binary(k.clone()),
            _ => return None,
        };
        Some(Self { first, then: None })
    }

    /// Takes the next call in, if it is a function of exactly the launch that waits, in place.
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
            First::Unary(k) => elementwise::unary(cx, k, then),
            First::Binary(k) => elementwise::binary(cx, k, then),
        }
    }

    fn out(&self) -> &Operand {
        match &self.first {
            First::Unary(k) => &k.out,
            First::Binary(k) => &k.out,
        }
    }
}
