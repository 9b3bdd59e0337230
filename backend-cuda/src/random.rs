//! Philox words, uniforms and dropout.

use std::ffi::c_void;

use memcore::Result;
use memcore::backend::kernel::{Dropout, DropoutGrad, Random, RandomKind};

use crate::arguments::{Bits, arguments};
use crate::elementwise::{walk, wide};
use crate::kernel::{ONE_FORM, ONE_WIDE, Tag, kernels};
use crate::launch::{Context, ONE, WIDE};
use crate::walk::Walk;

arguments! { ARGUMENTS:
    struct RandomArgs {
        out: *mut c_void,
        seed: u64,
        offset: u64,
        elements: u64,
        low: f32,
        span: f32,
    }

    struct DropoutArgs {
        out: *mut c_void,
        x: *const c_void,
        mask: *mut u8,
        seed: u64,
        offset: u64,
        elements: u64,
        p: f32,
        /// 1/(1 - p); 0 if everything is dropped.
        scale: f32,
    }

    struct DropoutGradArgs {
        walk: Walk<3>,
        out: *mut c_void,
        grad: *const c_void,
        mask: *const u8,
        scale: f32,
        unused: u32,
    }
}

kernels! { KERNELS in Random:
    RANDOM_WORDS: "random_words" ONLY ONE_FORM => RandomArgs;
    RANDOM_UNIFORM: "random_uniform" FLOATS ONE_FORM => RandomArgs;
    DROPOUT: "dropout" FLOATS ONE_WIDE => DropoutArgs;
    DROPOUT_GRAD: "dropout_grad" FLOATS ONE_WIDE => DropoutGradArgs;
}

/// Elements per counter of the generator.
const WORDS: u64 = 4;

/// `out[i] = kind(philox(seed, offset, i))`.
pub(crate) fn random(ctx: &Context<'_>, k: &Random) -> Result<()> {
    let elements = k.out.numel() as u64;
    if elements == 0 {
        return Ok(());
    }
    let (kernel, tag, low, high) = match k.kind {
        RandomKind::Words => (RANDOM_WORDS, Tag::Only, 0.0, 0.0),
        RandomKind::Uniform { low, high } => (RANDOM_UNIFORM, Tag::tag_of(k.out.dtype), low as f32, high as f32),
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
    ctx.launch(DROPOUT, Tag::tag_of(k.out.dtype), form, ctx.grid(elements.div_ceil(WORDS)), &args)
}

/// `out = mask ? scale·grad : 0`.
pub(crate) fn dropout_grad(ctx: &Context<'_>, k: &DropoutGrad) -> Result<()> {
    walk(ctx, [&k.out, &k.grad, &k.mask], wide(k.out.dtype), |walk, [out, grad, mask], form| {
        let args = DropoutGradArgs { walk, out, grad, mask, scale: Bits(k.scale as f32), unused: 0 };
        ctx.launch(DROPOUT_GRAD, Tag::tag_of(k.out.dtype), form, ctx.grid(walk.packs), &args)
    })
}
