//! Reductions over any set of axes.
//!
//! Kept axes are merged among themselves, and so are reduced axes. Then one thread reduces a whole group if groups are
//! short or their elements are far apart (columns: neighbouring threads read adjacent elements); otherwise a workgroup
//! does. Few long groups are cut into parts, whose results are stored in the fixed scratch until a second launch joins
//! them.

mod plan;

use memcore::DType;
use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare, fill_in};
use crate::job::{Context, Job};
use crate::key::Variant;
use plan::{Axes, Plan};

/// Integers have sums and extrema only.
pub(crate) fn supports(k: &Reduce) -> bool {
    let counted = matches!(k.op, ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min);
    k.x.dtype.is_float() || (counted && matches!(k.x.dtype, DType::I64 | DType::I32))
}

/// Source and destination of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// From the operand to the results.
    Whole,
    /// From the operand to the scratch.
    Parts,
    /// From the scratch to the results.
    Join,
}

pub(crate) fn reduce(cx: &mut Context<'_>, k: &Reduce) -> Result<()> {
    let axes = Axes::new(k);
    if axes.outs() == 0 {
        return Ok(());
    }
    let plan = Plan::new(&axes, cx.gpu.info.is_software);
    if plan.parts == 1 {
        return launch(cx, k, &axes, Stage::Whole, &plan);
    }
    launch(cx, k, &axes, Stage::Parts, &plan)?;
    let join = Plan { parts: 1, together: plan.parts > 64, length: plan.parts };
    launch(cx, k, &axes, Stage::Join, &join)
}

fn launch(cx: &mut Context<'_>, k: &Reduce, axes: &Axes, stage: Stage, plan: &Plan) -> Result<()> {
    let (elem, unrounded) = (Elem::from_dtype(k.x.dtype), k.out.dtype != k.x.dtype);
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.out).bind_opt(k.indices.as_ref()).bind_scratch();
    let total = if stage == Stage::Join { plan.length } else { axes.total() };
    job.u(axes.outs()).u(total).u(plan.length).u(plan.parts).f(axes.total() as f64).u(0).u(0).u(0);
    axes.push(&mut job);
    let groups = (axes.outs() * plan.parts) as u64;
    let threads: u64 = if plan.together { 1 } else { 64 };
    let variant = Variant::new().with(4, elem.code()).with(3, k.op as u64).with(2, stage as u64);
    let variant = variant.with(1, plan.together.into()).with(1, k.indices.is_some().into());
    let variant = variant.with(1, unrounded.into());
    let variant = variant.with(3, axes.kept.rank as u64).with(3, axes.reduced.rank as u64);
    cx.run(&job, variant.key("reduce"), groups.div_ceil(threads), || source(k, axes, stage, plan.together, elem))
}

fn source(k: &Reduce, axes: &Axes, stage: Stage, together: bool, elem: Elem) -> String {
    let slots = [
        Slot::read("x", elem),
        Slot::write("out", Elem::from_dtype(k.out.dtype)),
        Slot::write("indices", Elem::I64),
        Slot::write("scratch", Elem::B4),
    ];
    let fields = "outs: u32, total: u32, length: u32, parts: u32, count: f32, pad0: u32, pad1: u32, pad2: u32, \
         kept: array<vec4<u32>, 2>, kept_x: array<vec4<u32>, 2>, kept_out: array<vec4<u32>, 2>, \
         reduced: array<vec4<u32>, 2>, reduced_x: array<vec4<u32>, 2>";
    let t = elem.wgsl();
    let (start, better) = arithmetic(k.op, t);
    let value = match (stage, k.op) {
        // The scratch holds squares already: they are only summed.
        (Stage::Join, _) | (_, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min) => "x",
        (_, ReduceOp::SumSquares) => "x * x",
    };
    // A partial result is two words and a position.
    let (from_words, to_words) = match elem {
        Elem::I64 => ("vec2<u32>(scratch_at(w), scratch_at(w + 1u))", ["best.x.x", "best.x.y"]),
        Elem::I32 => ("bitcast<i32>(scratch_at(w))", ["bitcast<u32>(best.x)", "0u"]),
        _ => ("bitcast<f32>(scratch_at(w))", ["bitcast<u32>(best.x)", "0u"]),
    };
    let load = if stage == Stage::Join {
        format!("let w = 3u * (r * p.outs + o); var one = Best({from_words}, scratch_at(w + 2u));")
    } else {
        "var one = Best(x_at(base + reduced_offset(r)), r);".to_string()
    };
    let put = match (stage, k.op) {
        (Stage::Parts, _) => format!(
            "let w = 3u * (part * p.outs + o); scratch_put(w, {}); scratch_put(w + 1u, {}); scratch_put(w + 2u, best.at);",
            to_words[0], to_words[1]
        ),
        (_, ReduceOp::Mean) => "out_put(kept_out_offset(o), best.x / p.count);".to_string(),
        _ => "out_put(kept_out_offset(o), best.x);".to_string(),
    };
    let indices =
        if stage != Stage::Parts && k.indices.is_some() { "indices_put(o, vec2<u32>(best.at, 0u));" } else { "" };
    let texts = [
        ("$VALUE", value),
        ("$START", start),
        ("$JOIN", better),
        ("$LOAD", load.as_str()),
        ("$PUT", put.as_str()),
        ("$INDICES", indices),
        ("$T", t),
    ];
    let offsets = axes.kept.offset("kept_x_offset", "kept", "kept_x")
        + &axes.kept.offset("kept_out_offset", "kept", "kept_out")
        + &axes.reduced.offset("reduced_offset", "reduced", "reduced_x");
    let template = if together { include_str!("together.wgsl") } else { include_str!("alone.wgsl") };
    let i64s = if elem == Elem::I64 { include_str!("../elementwise/i64.wgsl") } else { "" };
    declare(&slots, fields) + i64s + &offsets + &fill_in(include_str!("join.wgsl"), &texts) + &fill_in(template, &texts)
}

/// The initial value of a group, and the combination of two partial results. Either `a.at` precedes `b.at`, or the
/// order does not matter.
fn arithmetic(op: ReduceOp, t: &str) -> (&'static str, &'static str) {
    match (op, t) {
        (ReduceOp::Max, "f32") => (
            "Best(-infinity(), 0xffffffffu)",
            "if (is_nan(a.x) || is_nan(b.x)) { return pick(a, b, is_nan(a.x), is_nan(b.x)); } \
             return pick(a, b, a.x >= b.x, b.x >= a.x);",
        ),
        (ReduceOp::Min, "f32") => (
            "Best(infinity(), 0xffffffffu)",
            "if (is_nan(a.x) || is_nan(b.x)) { return pick(a, b, is_nan(a.x), is_nan(b.x)); } \
             return pick(a, b, a.x <= b.x, b.x <= a.x);",
        ),
        (ReduceOp::Max, "i32") => {
            ("Best(bitcast<i32>(0x80000000u), 0xffffffffu)", "return pick(a, b, a.x >= b.x, b.x >= a.x);")
        }
        (ReduceOp::Min, "i32") => ("Best(0x7fffffff, 0xffffffffu)", "return pick(a, b, a.x <= b.x, b.x <= a.x);"),
        (ReduceOp::Max, _) => (
            "Best(vec2<u32>(0u, 0x80000000u), 0xffffffffu)",
            "return pick(a, b, !i64_less(a.x, b.x), !i64_less(b.x, a.x));",
        ),
        (ReduceOp::Min, _) => (
            "Best(vec2<u32>(0xffffffffu, 0x7fffffffu), 0xffffffffu)",
            "return pick(a, b, !i64_less(b.x, a.x), !i64_less(a.x, b.x));",
        ),
        (_, "f32") => ("Best(0.0, 0u)", "return Best(a.x + b.x, 0u);"),
        (_, "i32") => ("Best(0, 0u)", "return Best(a.x + b.x, 0u);"),
        _ => ("Best(vec2<u32>(0u, 0u), 0u)", "return Best(i64_add(a.x, b.x), 0u);"),
    }
}

impl Axes {
    fn push(&self, job: &mut Job) {
        for list in [self.kept.dims, self.kept.strides, self.kept.out, self.reduced.dims, self.reduced.strides] {
            for value in list.into_iter().chain([0, 0]) {
                job.u(value);
            }
        }
    }
}
