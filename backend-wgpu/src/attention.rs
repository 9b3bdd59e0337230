//! Fused attention, its gradients, and rotary embedding.
//!
//! A workgroup computes some rows of a result by tiles of scores (`tile.rs`): queries against all keys, or keys against
//! all queries of their group. With `causal`, tiles that hide every pair are left out. Scores exist only in workgroup
//! memory. Nothing of the size of the score matrix is stored, except the gradient of a mask if it is wanted.

mod tile;

use memcore::backend::Operand;
use memcore::backend::kernel::{Attention, AttentionGrad, Rope};
use memcore::error::Result;

use crate::element::{Elem, Slot, Width, declare};
use crate::job::{Context, Job};
use crate::key::Variant;
use tile::{COLUMNS, GRAD, Join, K, Pass, Q, Tile, V};

/// The largest head: a thread keeps an eighth of it for each of its rows.
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

/// Sizes, and the strides of q, k, v, mask, the result's gradient, and what is written; all but the mask and its
/// gradient have a last stride of 1.
const FIELDS: &str = "b: u32, h: u32, hk: u32, t: u32, s: u32, d: u32, dv: u32, scale: f32, \
     q_strides: vec4<u32>, k_strides: vec4<u32>, v_strides: vec4<u32>, mask_strides: vec4<u32>, \
     grad_strides: vec4<u32>, out_strides: vec4<u32>";

/// True if four elements of each row of the heads can be read or written at once; the operand is the job's `i`th.
fn has_quads(job: &Job, (i, x): (usize, &Operand)) -> bool {
    let aligned = |axis: usize| x.dims()[axis] == 1 || x.layout.strides()[axis].is_multiple_of(4);
    x.dims()[3].is_multiple_of(4) && (0..3).all(aligned) && job.first(i).is_multiple_of(4)
}

impl Problem<'_> {
    fn variant(&self, tile: Tile) -> Variant {
        let variant = Variant::new().with(4, Elem::from_dtype(self.q.dtype).code());
        variant.with(1, self.mask.is_some().into()).with(1, self.causal.into()).with(7, tile.code())
    }

    fn push(&self, job: &mut Job, grad: &Operand, out: &Operand) {
        let (q, k, v) = (self.q.dims(), self.k.dims(), self.v.dims());
        job.u(q[0]).u(q[1]).u(k[1]).u(q[2]).u(k[2]).u(q[3]).u(v[3]).f(self.scale);
        for operand in [self.q, self.k, self.v, self.mask.unwrap_or(self.q), grad, out] {
            for &stride in operand.layout.strides() {
                job.u(stride);
            }
        }
    }

    /// The text of a pass with this tile; `texts` are its own.
    fn source(&self, tile: Tile, pass: &str, texts: &[(&str, &str)]) -> String {
        let height = tile.height();
        let (end, begin) = if self.causal {
            (format!("min(p.s, r0 + {height}u)"), "r0 / 32u * 32u")
        } else {
            ("p.s".to_string(), "0u")
        };
        let mut all = vec![
            ("$CAUSAL", if self.causal { "j > i" } else { "false" }),
            ("$MASK", if self.mask.is_some() { " + mask_at(place(b, h, i, j, p.mask_strides))" } else { "" }),
            ("$KEYS_END", end.as_str()),
            ("$QUERIES_BEGIN", begin),
        ];
        all.extend_from_slice(texts);
        tile.source(pass, &all)
    }

    /// The slots of q, k, v and the mask.
    fn slots(&self, width: Width) -> Vec<Slot> {
        let elem = Elem::from_dtype(self.q.dtype);
        let mut slots: Vec<Slot> = ["q", "k", "v"].map(|name| Slot::read(name, elem).wide(width)).into();
        slots.push(Slot::read("mask", elem));
        slots
    }
}

fn width(wide: bool) -> Width {
    if wide { Width::Four } else { Width::One }
}

pub(crate) fn attention(cx: &mut Context<'_>, k: &Attention) -> Result<()> {
    let problem = Problem { q: &k.q, k: &k.k, v: &k.v, mask: k.mask.as_ref(), scale: k.scale, causal: k.causal };
    let (q, v) = (k.q.dims(), k.v.dims());
    cx.gpu.check_rounds("attention", v[2].div_ceil(COLUMNS) * Tile::rounds(&[q[3]], v[3]))?;
    let mut job = cx.job();
    job.bind(&k.q).bind(&k.k).bind(&k.v).bind_opt(k.mask.as_ref()).bind(&k.out);
    job.bind_opt(k.logsumexp.as_ref());
    problem.push(&mut job, &k.out, &k.out);
    let wide = [(0, &k.q), (1, &k.k), (2, &k.v), (4, &k.out)].into_iter().all(|x| has_quads(&job, x));
    let pass = Pass { heads: q[0] * q[1], rows: q[2], products: 1, width: v[3] };
    let tile = Tile::for_pass(cx.gpu, &pass, wide);
    let variant = problem.variant(tile).with(1, k.logsumexp.is_some().into());
    cx.run(&job, variant.key("attention"), tile.groups(&pass), || {
        let mut slots = problem.slots(width(wide));
        slots.push(Slot::write("out", Elem::from_dtype(k.q.dtype)).wide(width(wide)));
        slots.push(Slot::write("logsumexp", Elem::F32));
        let begin = tile.begin("t", "h", false);
        let (scores, weighted) = (tile.product("s", &Q, &K), tile.weighted(&V));
        let (largest, total) = (tile.over_row("most", Join::Largest), tile.over_row("total", Join::Sum));
        let texts = [
            ("$BEGIN", begin.as_str()),
            ("$SCORES", &scores),
            ("$WEIGHTED", &weighted),
            ("$LARGEST", &largest),
            ("$TOTAL", &total),
            ("$PUT", &tile.put("t", "h")),
            ("$DENOMINATORS", if k.logsumexp.is_some() { "tx == 0u" } else { "false" }),
        ];
        declare(&slots, FIELDS)
            + &tile.access(&[Q, K, V], "dv")
            + &problem.source(tile, include_str!("attention/forward.wgsl"), &texts)
    })
}

pub(crate) fn attention_grad(cx: &mut Context<'_>, k: &AttentionGrad) -> Result<()> {
    let (q, keys_of, v) = (k.q.dims(), k.k.dims(), k.v.dims());
    if k.q.numel() > 0 && k.k.numel() > 0 {
        let tiles = keys_of[2].div_ceil(COLUMNS).max(q[2].div_ceil(COLUMNS) * (q[1] / keys_of[1]));
        cx.gpu.check_rounds("attention_grad", tiles * Tile::rounds(&[q[3], v[3]], q[3].max(v[3])))?;
    }
    delta(cx, k)?;
    by_queries(cx, k, &k.dq)?;
    // Together with the gradient of q, that of the mask would have more operands than every device binds.
    if let Some(dmask) = &k.dmask {
        by_queries(cx, k, dmask)?;
    }
    by_keys(cx, k, false)?;
    by_keys(cx, k, true)
}

fn problem_of(k: &AttentionGrad) -> Problem<'_> {
    Problem { q: &k.q, k: &k.k, v: &k.v, mask: k.mask.as_ref(), scale: k.scale, causal: k.causal }
}

/// A job of a gradient's pass that writes `out`; true if all its matrices can be read by quads.
fn gradient_job(cx: &Context<'_>, k: &AttentionGrad, out: &Operand) -> (Job, bool) {
    let mut job = cx.job();
    job.bind(&k.q).bind(&k.k).bind(&k.v).bind_opt(k.mask.as_ref());
    job.bind(&k.grad).bind(&k.logsumexp).bind(&k.delta).bind(out);
    problem_of(k).push(&mut job, &k.grad, out);
    let wide = [(0, &k.q), (1, &k.k), (2, &k.v), (4, &k.grad)].into_iter().all(|x| has_quads(&job, x));
    (job, wide)
}

/// The slots of a gradient's pass.
fn gradient_slots(problem: &Problem<'_>, wide: bool, out: Width) -> Vec<Slot> {
    let elem = Elem::from_dtype(problem.q.dtype);
    let mut slots = problem.slots(width(wide));
    slots.push(Slot::read("grad", elem).wide(width(wide)));
    slots.push(Slot::read("logsumexp", Elem::F32));
    slots.push(Slot::read("delta", Elem::F32));
    slots.push(Slot::write("out", elem).wide(out));
    slots
}

/// `Σ grad·out` of each row.
fn delta(cx: &mut Context<'_>, k: &AttentionGrad) -> Result<()> {
    let elem = Elem::from_dtype(k.q.dtype);
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

/// The gradient of q, or of the mask if that is `out`.
fn by_queries(cx: &mut Context<'_>, k: &AttentionGrad, out: &Operand) -> Result<()> {
    let pairs = k.dmask.as_ref().is_some_and(|dmask| std::ptr::eq(dmask, out));
    let (problem, q) = (problem_of(k), k.q.dims());
    let (job, mut wide) = gradient_job(cx, k, out);
    wide &= pairs || has_quads(&job, (7, out));
    let width = if pairs { 0 } else { q[3] };
    let pass = Pass { heads: q[0] * q[1], rows: q[2], products: 2, width };
    let tile = Tile::for_pass(cx.gpu, &pass, wide);
    let (name, columns, template) = if pairs {
        ("attention_dmask", k.k.dims()[2].div_ceil(COLUMNS), include_str!("attention/mask.wgsl"))
    } else {
        ("attention_dq", 1, include_str!("attention/queries.wgsl"))
    };
    cx.run(&job, problem.variant(tile).key(name), tile.groups(&pass) * columns as u64, || {
        let slots = gradient_slots(&problem, wide, if pairs { Width::One } else { self::width(wide) });
        let (scores, through) = (tile.product("s", &Q, &K), tile.product("t", &GRAD, &V));
        let gradients = include_str!("attention/gradients.wgsl").replace("$SCORES", &scores);
        let gradients = gradients.replace("$THROUGH", &through);
        let texts = [
            ("$BEGIN", tile.begin("t", "h", pairs)),
            ("$PAIRS", include_str!("attention/pairs.wgsl").to_string()),
            ("$GRADIENTS", gradients),
            ("$WEIGHTED", tile.weighted(&K)),
            ("$PUT", tile.put("t", "h")),
        ];
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let writes = if pairs { "" } else { "d" };
        declare(&slots, FIELDS) + &tile.access(&[Q, K, V, GRAD], writes) + &problem.source(tile, template, &texts)
    })
}

/// The gradient of k, or of v if `values`. Both in one pass would have more operands than every device binds.
fn by_keys(cx: &mut Context<'_>, k: &AttentionGrad, values: bool) -> Result<()> {
    let (problem, out, other) = (problem_of(k), if values { &k.dv } else { &k.dk }, if values { GRAD } else { Q });
    let (job, mut wide) = gradient_job(cx, k, out);
    wide &= has_quads(&job, (7, out));
    let keys = k.k.dims();
    let products = if values { 1 } else { 2 };
    let pass = Pass { heads: keys[0] * keys[1], rows: keys[2], products, width: out.dims()[3] };
    let tile = Tile::for_pass(cx.gpu, &pass, wide);
    let variant = problem.variant(tile).with(1, values.into());
    cx.run(&job, variant.key("attention_dkv"), tile.groups(&pass), || {
        let slots = gradient_slots(&problem, wide, width(wide));
        let through = if values { String::new() } else { tile.product("t", &V, &GRAD) };
        let texts = [
            ("$BEGIN", tile.begin("s", "hk", false)),
            ("$SCORES", tile.product("s", &K, &Q)),
            ("$THROUGH", through),
            ("$FACTOR", if values { "p$i_$j" } else { "p.scale * p$i_$j * (t$i_$j - delta$j)" }.to_string()),
            ("$WEIGHTED", tile.weighted(&other)),
            ("$PUT", tile.put("s", "hk")),
        ];
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        declare(&slots, FIELDS)
            + &tile.access(&[Q, K, V, GRAD], other.width)
            + &problem.source(tile, include_str!("attention/keys.wgsl"), &texts)
    })
}

pub(crate) fn rope(cx: &mut Context<'_>, k: &Rope) -> Result<()> {
    let elem = Elem::from_dtype(k.x.dtype);
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
