//! Philox words, uniforms and dropout: the same bits on every backend.

use memcore::backend::Operand;
use memcore::backend::kernel::{Dropout, DropoutGrad, Random, RandomKind};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare};
use crate::job::{Context, Job};
use crate::key::Variant;
use crate::pointwise::Pointwise;

const PHILOX: &str = include_str!("random/philox.wgsl");
const FIELDS: &str =
    "n: u32, seed_low: u32, seed_high: u32, offset_low: u32, offset_high: u32, a: f32, b: f32, zero: u32";

/// Pushes the generator's parameters. Each thread makes the four words of one counter.
fn generator(job: &mut Job, n: usize, seed: u64, offset: u64, scalars: [f32; 2]) {
    job.u(n).word(seed as u32).word((seed >> 32) as u32).word(offset as u32).word((offset >> 32) as u32);
    job.word(scalars[0].to_bits()).word(scalars[1].to_bits()).u(0);
}

fn groups(out: &Operand) -> u64 {
    (out.numel() as u64).div_ceil(4).div_ceil(256)
}

pub(crate) fn random(cx: &mut Context<'_>, k: &Random) -> Result<()> {
    let elem = Elem::from_dtype(k.out.dtype);
    let (uniform, low, span) = match k.kind {
        RandomKind::Words => (false, 0.0, 0.0),
        RandomKind::Uniform { low, high } => (true, low as f32, high as f32 - low as f32),
    };
    let mut job = cx.job();
    job.bind(&k.out);
    generator(&mut job, k.out.numel(), k.seed, k.offset, [low, span]);
    let variant = Variant::new().with(4, elem.code()).with(1, uniform.into());
    cx.run(&job, variant.key("random"), groups(&k.out), || {
        // The product is rounded before the sum: a fused multiply-add would give other bits.
        let value = if uniform {
            "p.a + bitcast<f32>(bitcast<u32>(p.b * uniform_of(word)) ^ p.zero)"
        } else {
            "bitcast<i32>(word)"
        };
        declare(&[Slot::write("out", elem)], FIELDS) + PHILOX + &each_word(&format!("out_put(i, {value});"))
    })
}

pub(crate) fn dropout(cx: &mut Context<'_>, k: &Dropout) -> Result<()> {
    let elem = Elem::from_dtype(k.out.dtype);
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.mask).bind(&k.out);
    // Uniforms are below 1, so none reaches 2.
    let threshold = if k.p < 1.0 { k.p as f32 } else { 2.0 };
    generator(&mut job, k.out.numel(), k.seed, k.offset, [threshold, (1.0 / (1.0 - k.p)) as f32]);
    let variant = Variant::new().with(4, elem.code());
    cx.run(&job, variant.key("dropout"), groups(&k.out), || {
        let slots = [Slot::read("x", elem), Slot::write("mask", Elem::Bool), Slot::write("out", elem)];
        let body = "let kept = uniform_of(word) >= p.a;\n\
            var value = 0.0;\n\
            if (kept) { value = x_at(i) * p.b; }\n\
            mask_put(i, select(0, 1, kept));\n\
            out_put(i, value);";
        declare(&slots, FIELDS) + PHILOX + &each_word(body)
    })
}

pub(crate) fn dropout_grad(cx: &mut Context<'_>, k: &DropoutGrad) -> Result<()> {
    let elem = Elem::from_dtype(k.out.dtype);
    let operands = [(&k.out, elem), (&k.grad, elem), (&k.mask, Elem::B1)];
    let scalars = [(k.scale as f32).to_bits(), 0, 0, 0, 0, 0];
    let kernel = Pointwise { name: "dropout_grad", op: 0, operands: &operands, scalars, indexed: false };
    kernel.run(cx, || "fn op(x: f32, mask: u32) -> f32 { if (mask != 0u) { return p.a * x; } return 0.0; }".into())
}

/// A kernel that runs `body` for each of the four elements `i` of a counter, with its `word`.
fn each_word(body: &str) -> String {
    format!(
        "@compute @workgroup_size(256)\nfn main(grid: Grid) {{\n\
         let counter = group_of(grid) * 256u + grid.lane;\n\
         if (counter * 4u >= p.n) {{ return; }}\n\
         let words = philox(counter);\n\
         for (var lane = 0u; lane < 4u; lane += 1u) {{\n\
         let i = counter * 4u + lane;\n\
         if (i < p.n) {{\nlet word = words[lane];\n{body}\n}}\n}}\n}}\n"
    )
}
