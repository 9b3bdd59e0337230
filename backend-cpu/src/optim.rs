//! Fused optimizer steps: one pass over each parameter, and the loss scaler's kernels.

use std::sync::atomic::{AtomicBool, Ordering};

use memcore::backend::Operand;
use memcore::backend::kernel::{AdamStep, AdamTensors, SgdStep, SgdTensors, Unscale, UpdateScale};
use memcore::error::Result;

use crate::element::{Element, Float, Number, Real, float_type, larger};
use crate::parallel::INLINE_ELEMENTS;
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Elements per task.
const PIECE: usize = 16 << 10;

/// Calls `f(tensor, start, len)` for the pieces of many tensors of these sizes, in parallel if there are many elements in all.
fn for_pieces(
    ctx: &Context<'_>,
    count: usize,
    numel: impl Fn(usize) -> usize + Sync,
    f: impl Fn(usize, usize, usize) -> Result<()> + Sync,
) -> Result<()> {
    let (mut elements, mut pieces) = (0, 0);
    for t in 0..count {
        elements += numel(t);
        pieces += numel(t).div_ceil(PIECE);
    }
    if elements < INLINE_ELEMENTS {
        return (0..count).try_for_each(|t| f(t, 0, numel(t)));
    }
    let failed = std::sync::Mutex::new(Ok(()));
    ctx.for_each(pieces, |task| {
        let mut piece = task;
        for t in 0..count {
            let pieces = numel(t).div_ceil(PIECE);
            if piece < pieces {
                let start = piece * PIECE;
                if let Err(error) = f(t, start, PIECE.min(numel(t) - start)) {
                    *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Err(error);
                }
                return;
            }
            piece -= pieces;
        }
    });
    failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn read_f32(ctx: &Context<'_>, operand: &Operand) -> Result<f32> {
    // SAFETY: a scalar in bounds, read at once.
    Ok(unsafe { *ctx.ptr::<f32>(operand)? })
}

fn skips(ctx: &Context<'_>, found_inf: &Option<Operand>) -> Result<bool> {
    found_inf.as_ref().map_or(Ok(false), |f| Ok(read_f32(ctx, f)? != 0.0))
}

/// Returns elements `start..start + len` of an operand that one task updates.
///
/// # Safety
/// They are this task's alone.
#[allow(clippy::mut_from_ref)]
unsafe fn part<'a, T: Element>(
    ctx: &'a Context<'_>,
    operand: &Operand,
    start: usize,
    len: usize,
) -> Result<&'a mut [T]> {
    let all = SharedMut::from_ptr(ctx.ptr::<T>(operand)?);
    // SAFETY: in bounds (`ptr` checked); the caller asserts the rest.
    Ok(unsafe { all.part(start, len) })
}

/// Runs an SGD step over all parameters.
pub(crate) fn sgd_step(ctx: &Context<'_>, k: &SgdStep) -> Result<()> {
    if skips(ctx, &k.found_inf)? {
        return Ok(());
    }
    for_pieces(
        ctx,
        k.tensors.len(),
        |t| k.tensors[t].param.numel(),
        |t, start, len| {
            let t = &k.tensors[t];
            float_type!(t.param.dtype, T => sgd_piece::<T>(ctx, k, t, start, len), else Ok(()))
        },
    )
}

fn sgd_piece<T: Float>(ctx: &Context<'_>, k: &SgdStep, t: &SgdTensors, start: usize, len: usize) -> Result<()> {
    // SAFETY: pieces are disjoint, and no operands of a validated call overlap.
    unsafe {
        let param = part::<T>(ctx, &t.param, start, len)?;
        let grad = part::<T>(ctx, &t.grad, start, len)?;
        match &t.momentum {
            Some(momentum) => sgd_momentum(k, param, grad, part::<T>(ctx, momentum, start, len)?),
            None => sgd_plain(k, param, grad),
        }
    }
    Ok(())
}

simd! {
    fn sgd_plain<T: Float>(k: &SgdStep, param: &mut [T], grad: &[T]) = sgd_plain_body;
    fn sgd_momentum<T: Float>(k: &SgdStep, param: &mut [T], grad: &[T], buffer: &mut [T]) = sgd_momentum_body;
    fn adam<T: Float>(k: &Adam<T::Compute>, param: &mut [T], grad: &[T], exp_avg: &mut [T], exp_avg_sq: &mut [T]) = adam_body;
    fn adam_max<T: Float>(
        k: &Adam<T::Compute>, param: &mut [T], grad: &[T], exp_avg: &mut [T], exp_avg_sq: &mut [T], max: &mut [T],
    ) = adam_max_body;
    fn scale_finite<T: Float>(grad: &mut [T], inv_scale: T::Compute) -> bool = scale_finite_body;
}

#[inline(always)]
fn real<T: Float>(x: f64) -> T::Compute {
    <T::Compute as Number>::from_f64(x)
}

#[inline(always)]
fn sgd_plain_body<S: Isa, T: Float>(k: &SgdStep, param: &mut [T], grad: &[T]) {
    let (sign, decay, lr) =
        (real::<T>(if k.maximize { -1.0 } else { 1.0 }), real::<T>(k.weight_decay), real::<T>(-k.lr));
    for (p, g) in param.iter_mut().zip(grad) {
        let x = p.get();
        let g = x.fma::<S>(decay, sign * g.get());
        *p = T::put(g.fma::<S>(lr, x));
    }
}

#[inline(always)]
fn sgd_momentum_body<S: Isa, T: Float>(k: &SgdStep, param: &mut [T], grad: &[T], buffer: &mut [T]) {
    let (sign, decay, lr) =
        (real::<T>(if k.maximize { -1.0 } else { 1.0 }), real::<T>(k.weight_decay), real::<T>(-k.lr));
    let (momentum, fresh) = (real::<T>(k.momentum), real::<T>(1.0 - k.dampening));
    for ((p, g), b) in param.iter_mut().zip(grad).zip(buffer) {
        let x = p.get();
        let g = x.fma::<S>(decay, sign * g.get());
        // The first step fills the buffer, whatever its contents.
        let m = if k.first_step { g } else { momentum.fma::<S>(b.get(), fresh * g) };
        let g = if k.nesterov { momentum.fma::<S>(m, g) } else { m };
        *b = T::put(m);
        *p = T::put(g.fma::<S>(lr, x));
    }
}

/// The scalars of an Adam step, in the compute type.
struct Adam<C> {
    sign: C,
    /// Weight decay that is added to the gradient, per parameter (Adam).
    decay: C,
    /// Factor by which the parameter is multiplied first (AdamW).
    shrink: C,
    one_minus_beta1: C,
    beta2: C,
    one_minus_beta2: C,
    /// `−lr/(1 − β₁ᵗ)`
    step_size: C,
    /// `1/√(1 − β₂ᵗ)`
    inv_correction: C,
    eps: C,
}

impl<C: Real> Adam<C> {
    fn new(k: &AdamStep, step: f64) -> Self {
        let c = C::from_f64;
        Self {
            sign: c(if k.maximize { -1.0 } else { 1.0 }),
            decay: c(if k.decoupled { 0.0 } else { k.weight_decay }),
            shrink: c(if k.decoupled { 1.0 - k.lr * k.weight_decay } else { 1.0 }),
            one_minus_beta1: c(1.0 - k.betas[0]),
            beta2: c(k.betas[1]),
            one_minus_beta2: c(1.0 - k.betas[1]),
            step_size: c(-k.lr / (1.0 - k.betas[0].powf(step))),
            inv_correction: c(1.0 / (1.0 - k.betas[1].powf(step)).sqrt()),
            eps: c(k.eps),
        }
    }

    /// Updates the moments from a gradient, and returns them with the (shrunk) parameter.
    #[inline(always)]
    fn moments<S: Isa>(&self, p: C, g: C, m: C, v: C) -> (C, C, C) {
        let p = p * self.shrink;
        let g = p.fma::<S>(self.decay, self.sign * g);
        let m = self.one_minus_beta1.fma::<S>(g - m, m);
        let v = (self.one_minus_beta2 * g).fma::<S>(g, self.beta2 * v);
        (p, m, v)
    }

    /// Returns the new parameter.
    #[inline(always)]
    fn step<S: Isa>(&self, p: C, m: C, v: C) -> C {
        let denominator = v.sqrt().fma::<S>(self.inv_correction, self.eps);
        self.step_size.fma::<S>(m / denominator, p)
    }
}

#[inline(always)]
fn adam_body<S: Isa, T: Float>(
    k: &Adam<T::Compute>,
    param: &mut [T],
    grad: &[T],
    exp_avg: &mut [T],
    exp_avg_sq: &mut [T],
) {
    for (((p, g), m), v) in param.iter_mut().zip(grad).zip(exp_avg).zip(exp_avg_sq) {
        let (x, first, second) = k.moments::<S>(p.get(), g.get(), m.get(), v.get());
        *m = T::put(first);
        *v = T::put(second);
        *p = T::put(k.step::<S>(x, first, second));
    }
}

#[inline(always)]
fn adam_max_body<S: Isa, T: Float>(
    k: &Adam<T::Compute>,
    param: &mut [T],
    grad: &[T],
    exp_avg: &mut [T],
    exp_avg_sq: &mut [T],
    max: &mut [T],
) {
    for ((((p, g), m), v), largest) in param.iter_mut().zip(grad).zip(exp_avg).zip(exp_avg_sq).zip(max) {
        let (x, first, second) = k.moments::<S>(p.get(), g.get(), m.get(), v.get());
        let top = larger(largest.get(), second);
        *m = T::put(first);
        *v = T::put(second);
        *largest = T::put(top);
        *p = T::put(k.step::<S>(x, first, top));
    }
}

/// Runs an Adam or AdamW step over all parameters.
pub(crate) fn adam_step(ctx: &Context<'_>, k: &AdamStep) -> Result<()> {
    if skips(ctx, &k.found_inf)? {
        return Ok(());
    }
    for_pieces(
        ctx,
        k.tensors.len(),
        |t| k.tensors[t].param.numel(),
        |t, start, len| {
            let t = &k.tensors[t];
            float_type!(t.param.dtype, T => adam_piece::<T>(ctx, k, t, start, len), else Ok(()))
        },
    )
}

fn adam_piece<T: Float>(ctx: &Context<'_>, k: &AdamStep, t: &AdamTensors, start: usize, len: usize) -> Result<()> {
    let scalars = Adam::<T::Compute>::new(k, read_f32(ctx, &t.step)? as f64);
    // SAFETY: pieces are disjoint, and no operands of a validated call overlap.
    unsafe {
        let param = part::<T>(ctx, &t.param, start, len)?;
        let grad = part::<T>(ctx, &t.grad, start, len)?;
        let exp_avg = part::<T>(ctx, &t.exp_avg, start, len)?;
        let exp_avg_sq = part::<T>(ctx, &t.exp_avg_sq, start, len)?;
        match &t.max_exp_avg_sq {
            Some(max) => adam_max(&scalars, param, grad, exp_avg, exp_avg_sq, part::<T>(ctx, max, start, len)?),
            None => adam(&scalars, param, grad, exp_avg, exp_avg_sq),
        }
    }
    Ok(())
}

/// `grad *= inv_scale`. Also finds out whether a gradient is not finite.
pub(crate) fn unscale(ctx: &Context<'_>, k: &Unscale) -> Result<()> {
    let inv_scale = read_f32(ctx, &k.inv_scale)? as f64;
    let found = AtomicBool::new(false);
    for_pieces(
        ctx,
        k.grads.len(),
        |t| k.grads[t].numel(),
        |t, start, len| {
            let grad = &k.grads[t];
            let finite = float_type!(grad.dtype, T => {
            // SAFETY: pieces are disjoint, and no operands of a validated call overlap.
            scale_finite(unsafe { part::<T>(ctx, grad, start, len)? }, real::<T>(inv_scale))
        }, else true);
            if !finite {
                found.store(true, Ordering::Relaxed);
            }
            Ok(())
        },
    )?;
    if found.into_inner() {
        // SAFETY: a scalar in bounds; nothing runs any more.
        unsafe { *ctx.ptr::<f32>(&k.found_inf)? = 1.0 };
    }
    Ok(())
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn scale_finite_body<S: Isa, T: Float>(grad: &mut [T], inv_scale: T::Compute) -> bool {
    // x·0 is 0 for finite x and NaN otherwise.
    let (mut finite, zero) = (true, T::Compute::default());
    for g in grad {
        let x = g.get();
        finite &= x * zero == zero;
        *g = T::put(x * inv_scale);
    }
    finite
}

/// Adapts the loss scale.
pub(crate) fn update_scale(ctx: &Context<'_>, k: &UpdateScale) -> Result<()> {
    let found = read_f32(ctx, &k.found_inf)? != 0.0;
    let (scale, tracker) = (ctx.ptr::<f32>(&k.scale)?, ctx.ptr::<i32>(&k.growth_tracker)?);
    // SAFETY: scalars in bounds that do not overlap.
    let (scale, tracker) = unsafe { (&mut *scale, &mut *tracker) };
    if found {
        *scale *= k.backoff_factor as f32;
        *tracker = 0;
        return Ok(());
    }
    *tracker = tracker.wrapping_add(1);
    if *tracker == k.growth_interval {
        let grown = *scale * k.growth_factor as f32;
        if grown.is_finite() {
            *scale = grown;
        }
        *tracker = 0;
    }
    Ok(())
}
