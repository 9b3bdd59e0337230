//! Philox words, uniforms and dropout.

use memcore::Result;
use memcore::backend::kernel::{Dropout, DropoutGrad, Random, RandomKind};

use crate::elementwise::{walk, wide};
use crate::kernels::{Kernel, Tag};
use crate::launch::{Bits, Context, ONE, WIDE};
use crate::walk::Walk;

/// `RandomArgs` of the kernels, as the structs below.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct RandomArgs {
    out: u64,
    seed: u64,
    offset: u64,
    elements: u64,
    low: Bits<f32>,
    span: Bits<f32>,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct DropoutArgs {
    out: u64,
    x: u64,
    mask: u64,
    seed: u64,
    offset: u64,
    elements: u64,
    p: Bits<f32>,
    scale: Bits<f32>,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct DropoutGradArgs {
    walk: Walk<3>,
    out: u64,
    grad: u64,
    mask: u64,
    scale: Bits<f32>,
    unused: u32,
}

/// Elements of one counter of the generator.
const WORDS: u64 = 4;

/// `out[i] = kind(philox(seed, offset, i))`.
pub(crate) fn random(ctx: &Context<'_>, k: &Random) -> Result<()> {
    let elements = k.out.numel() as u64;
    if elements == 0 {
        return Ok(());
    }
    let (kernel, tag, low, high) = match k.kind {
        RandomKind::Words => (Kernel::RandomWords, Tag::Only, 0.0, 0.0),
        RandomKind::Uniform { low, high } => (Kernel::RandomUniform, Tag::of(k.out.dtype), low as f32, high as f32),
    };
    let args = RandomArgs {
        out: ctx.at(&k.out)?,
        seed: k.seed,
        offset: k.offset,
        elements,
        low: Bits(low),
        span: Bits(high - low),
    };
    ctx.launch(kernel, tag, 0, ctx.grid(elements.div_ceil(WORDS)), &args)
}

/// `mask[i] = u(i) ≥ p`, `out = mask ? x/(1 − p) : 0`.
pub(crate) fn dropout(ctx: &Context<'_>, k: &Dropout) -> Result<()> {
    let elements = k.out.numel() as u64;
    if elements == 0 {
        return Ok(());
    }
    let args = DropoutArgs {
        out: ctx.at(&k.out)?,
        x: ctx.at(&k.x)?,
        mask: ctx.at(&k.mask)?,
        seed: k.seed,
        offset: k.offset,
        elements,
        p: Bits(k.p as f32),
        scale: Bits(if k.p < 1.0 { (1.0 / (1.0 - k.p)) as f32 } else { 0.0 }),
    };
    let size = k.out.dtype.size();
    let aligned = [(args.out, size), (args.x, size), (args.mask, 1)];
    let aligned = aligned.iter().all(|(base, size)| base.is_multiple_of(WORDS * size));
    let form = if aligned { WIDE } else { ONE };
    ctx.launch(Kernel::Dropout, Tag::of(k.out.dtype), form, ctx.grid(elements.div_ceil(WORDS)), &args)
}

/// `out = mask ? scale·grad : 0`.
pub(crate) fn dropout_grad(ctx: &Context<'_>, k: &DropoutGrad) -> Result<()> {
    walk(ctx, [&k.out, &k.grad, &k.mask], wide(k.out.dtype), |walk, [out, grad, mask], form| {
        let args = DropoutGradArgs { walk, out, grad, mask, scale: Bits(k.scale as f32), unused: 0 };
        ctx.launch(Kernel::DropoutGrad, Tag::of(k.out.dtype), form, ctx.grid(walk.packs), &args)
    })
}
