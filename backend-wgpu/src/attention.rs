//! Fused attention, its gradients, and rotary embedding.
//!
//! A workgroup computes a few rows of a result: four queries against all keys, 64 at one time, or four keys against all
//! queries of their group. Scores exist only in workgroup memory. Nothing of the size of the score matrix is stored,
//! except the gradient of a mask if it is wanted.

use memcore::backend::Operand;
use memcore::backend::kernel::{Attention, AttentionGrad, Rope};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare, fill_in};
use crate::job::{Context, Job};
use crate::key::Variant;

/// Rows of a result that a workgroup computes.
const ROWS: usize = 4;
/// The largest head: four rows of it are kept in workgroup memory, twice.
const MAX_HEAD: usize = 256;

/// True if the heads are small enough.
pub(crate) fn supports(q: &Operand, v: &Operand) -> bool {
    q.dims()[3] <= MAX_HEAD && v.dims()[3] <= MAX_HEAD
}

/// Operands that all passes use.
struct Problem<'a> {
    q: &'a Operand,
    k: &'a Operand,
    v: &'a Operand,
    mask: Option<&'a Operand>,
    scale: f64,
    causal: bool,
}

/// Sizes, and the strides of q, k, v, mask, and of two more operands; all but the mask and its gradient
/// have a last stride of 1.
const FIELDS: &str = "b: u32, h: u32, hk: u32, t: u32, s: u32, d: u32, dv: u32, scale: f32, \
     q_strides: vec4<u32>, k_strides: vec4<u32>, v_strides: vec4<u32>, mask_strides: vec4<u32>, \
     e_strides: vec4<u32>, f_strides: vec4<u32>, half: u32";

impl Problem<'_> {
    fn variant(&self) -> Variant {
        let variant = Variant::new().with(4, Elem::of(self.q.dtype).code());
        variant.with(1, self.mask.is_some().into()).with(1, self.causal.into())
    }

    fn push(&self, job: &mut Job, e: &Operand, f: &Operand) {
        let (q, k, v) = (self.q.dims(), self.k.dims(), self.v.dims());
        job.u(q[0]).u(q[1]).u(k[1]).u(q[2]).u(k[2]).u(q[3]).u(v[3]).f(self.scale);
        for operand in [self.q, self.k, self.v, self.mask.unwrap_or(self.q), e, f] {
            for &stride in operand.layout.strides() {
                job.u(stride);
            }
        }
        // The first stride of the tree sum over the keys of a block.
        job.u(k[2].clamp(1, 64).next_power_of_two() / 2);
    }

    fn texts(&self) -> [(&'static str, &'static str); 2] {
        [
            ("$CAUSAL", if self.causal { "j > i" } else { "false" }),
            ("$MASK", if self.mask.is_some() { " + mask_at(place(b, h, i, j, p.mask_strides))" } else { "" }),
        ]
    }

    fn slots(&self) -> [Slot; 4] {
        let elem = Elem::of(self.q.dtype);
        [Slot::read("q", elem), Slot::read("k", elem), Slot::read("v", elem), Slot::read("mask", elem)]
    }

    /// Refuses sequences whose loops (`blocks` of 64, `share` times) a driver with a limit on rounds would not finish.
    fn check_rounds(&self, cx: &Context<'_>, length: usize, share: usize) -> Result<()> {
        let (d, dv) = (self.q.dims()[3], self.v.dims()[3]);
        let block = d + dv + 16 * d.max(dv).div_ceil(64) + 16;
        cx.gpu.check_rounds("attention", length.div_ceil(64) * block * share)
    }

    /// Workgroups for the rows of all heads.
    fn groups(heads: usize, rows: usize) -> u64 {
        (heads * rows.div_ceil(ROWS)) as u64
    }
}

pub(crate) fn attention(cx: &mut Context<'_>, k: &Attention) -> Result<()> {
    let problem = Problem { q: &k.q, k: &k.k, v: &k.v, mask: k.mask.as_ref(), scale: k.scale, causal: k.causal };
    problem.check_rounds(cx, k.k.dims()[2], 1)?;
    let mut job = cx.job();
    job.bind(&k.q).bind(&k.k).bind(&k.v).bind_opt(k.mask.as_ref()).bind(&k.out);
    job.bind_opt(k.logsumexp.as_ref());
    problem.push(&mut job, &k.out, &k.out);
    let q = k.q.dims();
    let variant = problem.variant().with(1, k.logsumexp.is_some().into());
    cx.run(&job, variant.key("attention"), Problem::groups(q[0] * q[1], q[2]), || {
        let mut slots = problem.slots().to_vec();
        slots.push(Slot::write("out", Elem::of(k.q.dtype)));
        slots.push(Slot::write("logsumexp", Elem::F32));
        let wanted = if k.logsumexp.is_some() { "lane == 0u" } else { "false" };
        declare(&slots, FIELDS)
            + &fill_in(include_str!("attention/scores.wgsl"), &problem.texts())
            + &fill_in(include_str!("attention/forward.wgsl"), &[("$DENOMINATORS", wanted)])
    })
}

pub(crate) fn attention_grad(cx: &mut Context<'_>, k: &AttentionGrad) -> Result<()> {
    let (q, keys_of) = (k.q.dims(), k.k.dims());
    if k.q.numel() > 0 && k.k.numel() > 0 {
        problem_of(k).check_rounds(cx, q[2].max(keys_of[2]), q[1] / keys_of[1])?;
    }
    delta(cx, k)?;
    queries(cx, k)?;
    mask(cx, k)?;
    keys(cx, k, false)?;
    keys(cx, k, true)
}

fn problem_of(k: &AttentionGrad) -> Problem<'_> {
    Problem { q: &k.q, k: &k.k, v: &k.v, mask: k.mask.as_ref(), scale: k.scale, causal: k.causal }
}

/// `Σ grad·out` of each row.
fn delta(cx: &mut Context<'_>, k: &AttentionGrad) -> Result<()> {
    let elem = Elem::of(k.q.dtype);
    let rows = k.delta.numel();
    let mut job = cx.job();
    job.bind(&k.grad).bind(&k.out).bind(&k.delta);
    job.u(rows).u(k.q.dims()[1]).u(k.q.dims()[2]).u(k.v.dims()[3]);
    for operand in [&k.grad, &k.out] {
        for &stride in operand.layout.strides() {
            job.u(stride);
        }
    }
    let variant = Variant::new().with(4, elem.code());
    cx.run(&job, variant.key("attention_delta"), (rows as u64).div_ceil(64), || {
        let slots = [Slot::read("grad", elem), Slot::read("result", elem), Slot::write("delta", Elem::F32)];
        declare(&slots, "rows: u32, h: u32, t: u32, dv: u32, e_strides: vec4<u32>, f_strides: vec4<u32>")
            + include_str!("attention/delta.wgsl")
    })
}

/// The gradient of q.
fn queries(cx: &mut Context<'_>, k: &AttentionGrad) -> Result<()> {
    let q = k.q.dims();
    by_queries(cx, k, &k.dq, "attention_dq", Problem::groups(q[0] * q[1], q[2]), include_str!("attention/queries.wgsl"))
}

/// The gradient of the mask, if it is wanted. Together with the gradient of q, a pass would have more operands than
/// every device binds.
fn mask(cx: &mut Context<'_>, k: &AttentionGrad) -> Result<()> {
    let Some(dmask) = &k.dmask else { return Ok(()) };
    let (q, blocks) = (k.q.dims(), k.k.dims()[2].div_ceil(64) as u64);
    let groups = Problem::groups(q[0] * q[1], q[2]) * blocks;
    by_queries(cx, k, dmask, "attention_dmask", groups, include_str!("attention/mask.wgsl"))
}

/// Runs a pass whose workgroups have four queries each.
fn by_queries(
    cx: &mut Context<'_>,
    k: &AttentionGrad,
    out: &Operand,
    name: &'static str,
    groups: u64,
    source: &str,
) -> Result<()> {
    let (problem, elem) = (problem_of(k), Elem::of(k.q.dtype));
    let mut job = cx.job();
    job.bind(&k.q).bind(&k.k).bind(&k.v).bind_opt(k.mask.as_ref());
    job.bind(&k.grad).bind(&k.logsumexp).bind(&k.delta).bind(out);
    problem.push(&mut job, &k.grad, out);
    cx.run(&job, problem.variant().key(name), groups, || {
        let mut slots = problem.slots().to_vec();
        slots.push(Slot::read("grad", elem));
        slots.push(Slot::read("logsumexp", Elem::F32));
        slots.push(Slot::read("delta", Elem::F32));
        slots.push(Slot::write("out", elem));
        declare(&slots, FIELDS)
            + &fill_in(include_str!("attention/scores.wgsl"), &problem.texts())
            + include_str!("attention/pairs.wgsl")
            + source
    })
}

/// The gradient of k, or of v if `values`. Both in one pass would have more operands than every device binds.
fn keys(cx: &mut Context<'_>, k: &AttentionGrad, values: bool) -> Result<()> {
    let (problem, elem) = (problem_of(k), Elem::of(k.q.dtype));
    let out = if values { &k.dv } else { &k.dk };
    let mut job = cx.job();
    job.bind(&k.q).bind(&k.k).bind(&k.v).bind_opt(k.mask.as_ref());
    job.bind(&k.grad).bind(&k.logsumexp).bind(&k.delta).bind(out);
    problem.push(&mut job, &k.grad, out);
    let kd = k.k.dims();
    let variant = problem.variant().with(1, values.into());
    cx.run(&job, variant.key("attention_dkv"), Problem::groups(kd[0] * kd[1], kd[2]), || {
        let mut slots = problem.slots().to_vec();
        slots.push(Slot::read("grad", elem));
        slots.push(Slot::read("logsumexp", Elem::F32));
        slots.push(Slot::read("delta", Elem::F32));
        slots.push(Slot::write("out", elem));
        let wide = if values { "p.dv" } else { "p.d" };
        let factor = if values { "probability" } else { "p.scale * probability * (through - delta_at(row))" };
        let (other, strides) = if values { ("grad", "e_strides") } else { ("q", "q_strides") };
        let texts = [
            ("$WIDE", wide),
            ("$FACTOR", factor),
            ("$OTHER", other),
            ("$STRIDES", strides),
            ("$THROUGH", if values { "false" } else { "true" }),
        ];
        declare(&slots, FIELDS)
            + &fill_in(include_str!("attention/scores.wgsl"), &problem.texts())
            + &fill_in(include_str!("attention/keys.wgsl"), &texts)
    })
}

pub(crate) fn rope(cx: &mut Context<'_>, k: &Rope) -> Result<()> {
    let elem = Elem::of(k.x.dtype);
    let d = k.x.dims();
    let pairs = k.x.numel() / 2;
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.cos).bind(&k.sin).bind(&k.out);
    job.u(pairs).u(d[1]).u(d[2]).u(d[3] / 2).f(if k.inverse { -1.0 } else { 1.0 }).u(0).u(0).u(0);
    for operand in [&k.x, &k.out] {
        for &stride in operand.layout.strides() {
            job.u(stride);
        }
    }
    let variant = Variant::new().with(4, elem.code());
    cx.run(&job, variant.key("rope"), (pairs as u64).div_ceil(256), || {
        let slots = [
            Slot::read("x", elem),
            Slot::read("cosines", Elem::F32),
            Slot::read("sines", Elem::F32),
            Slot::write("out", elem),
        ];
        let fields = "pairs: u32, t: u32, h: u32, half: u32, sign: f32, pad0: u32, pad1: u32, pad2: u32, \
             x_strides: vec4<u32>, out_strides: vec4<u32>";
        declare(&slots, fields) + include_str!("attention/rope.wgsl")
    })
}
