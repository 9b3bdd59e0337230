//! Reductions over any axes.

use memcore::DType::{self, F32, I32, I64};
use memcore::backend::kernel::{Reduce, ReduceOp};

use super::common::{FLOATS, MANY, MANY_LONG_ROWS};
use crate::case::{Case, CaseBuilder};
use crate::data::Data::{Ints, Range, Values};
use crate::tolerance::Tolerance;

const CHOSEN: Tolerance = Tolerance::exact("an element of the group, and its place");

const OPS: [(&str, ReduceOp); 5] = [
    ("sum", ReduceOp::Sum),
    ("mean", ReduceOp::Mean),
    ("sum_squares", ReduceOp::SumSquares),
    ("max", ReduceOp::Max),
    ("min", ReduceOp::Min),
];

/// Shapes, with the reduced axes as bits.
const SHAPES: [(&str, &[usize], u8); 14] = [
    ("last", &[5, 7], 0b10),
    ("first", &[5, 7], 0b01),
    ("all", &[5, 7], 0b11),
    ("none", &[5, 7], 0b00),
    ("middle", &[3, 5, 4], 0b010),
    ("outer_and_inner", &[3, 5, 4], 0b101),
    ("channels", &[2, 3, 4, 5], 0b1101),
    ("one", &[1], 0b1),
    ("empty", &[0, 5], 0b10),
    ("length_257", &[3, 257], 0b10),
    ("long_columns", &[3000, 2], 0b01),
    ("long_all", &[20_000], 0b1),
    ("many_rows", &[MANY, 2], 0b10),
    ("many_columns", &[2, MANY], 0b01),
];

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![representative()];
    for dtype in FLOATS {
        for (op_name, op) in OPS {
            for (name, dims, axes) in SHAPES.into_iter().filter(|s| dtype == F32 || s.1.iter().all(|&d| d < MANY)) {
                let case = Case::on(dtype, format!("{op_name}_{name}")).read("x", dims, data(op));
                out.push(reduce(case, op, dims, axes, false));
            }
        }
        if dtype.is_half() {
            out.extend(unrounded(dtype));
            out.extend(rows_in_packs(dtype));
            let (name, dims) = MANY_LONG_ROWS;
            for (op_name, op) in [("sum", ReduceOp::Sum), ("max", ReduceOp::Max)] {
                let case = Case::on(dtype, format!("{op_name}_{name}")).read("x", &dims, data(op));
                out.push(reduce(case, op, &dims, 0b10, false));
            }
        }
        out.extend(views(dtype));
        out.extend(extrema(dtype));
    }
    for dtype in [I64, I32] {
        for (op_name, op) in [("sum", ReduceOp::Sum), ("max", ReduceOp::Max), ("min", ReduceOp::Min)] {
            let case = Case::on(dtype, op_name).read("x", &[5, 7], Ints(-50, 50));
            out.push(reduce(case, op, &[5, 7], 0b10, false));
        }
        for (op_name, op) in [("max", ReduceOp::Max), ("min", ReduceOp::Min)] {
            let case = Case::on(dtype, format!("{op_name}_indices")).read("x", &[5, 7], Ints(-3, 4));
            out.push(reduce(case, op, &[5, 7], 0b10, true));
        }
    }
    out
}

/// A case with every operand that the kernel knows.
fn representative() -> Case {
    reduce(Case::on(F32, "max_with_indices").read("x", &[5, 7], Range(-1.0, 1.0)), ReduceOp::Max, &[5, 7], 0b10, true)
}

/// Sums of 16-bit floats whose results stay in f32.
fn unrounded(dtype: DType) -> Vec<Case> {
    let mut out = Vec::new();
    for (op_name, op) in &OPS[..3] {
        for (name, dims, axes) in SHAPES.into_iter().filter(|s| s.1.iter().all(|&d| d < MANY)) {
            let kept: Vec<usize> =
                dims.iter().enumerate().map(|(i, &d)| if axes >> i & 1 == 1 { 1 } else { d }).collect();
            let case = Case::on(dtype, format!("{op_name}_{name}_in_f32")).read("x", dims, data(*op));
            out.push(finish(case.write("out", &kept).typed(F32), *op, dims, axes, false));
        }
        let case = Case::on(dtype, format!("{op_name}_gapped_in_f32")).read("x", &[5, 7], data(*op)).gapped(2);
        out.push(finish(case.write("out", &[5, 1]).typed(F32).gapped(1), *op, &[5, 7], 0b10, false));
    }
    out
}

/// Sums of rows of 16-bit floats that begin at 16 bytes, of whole packs of them and not, and in an order of their own.
fn rows_in_packs(dtype: DType) -> Vec<Case> {
    let mut out = Vec::new();
    for (op_name, op) in &OPS[..3] {
        let named = |name: &str| Case::on(dtype, format!("{op_name}_{name}"));
        let whole = named("rows_of_packs").read("x", &[6, 40], data(*op));
        out.push(reduce(whole, *op, &[6, 40], 0b10, false));
        let cut = named("rows_of_packs_and_more").read("x", &[70, 2085], data(*op)).gapped(3).write("out", &[70, 1]);
        out.push(finish(cut.typed(F32), *op, &[70, 2085], 0b10, false));
        let turned = named("turned_rows_of_packs").read("x", &[3, 4, 48], data(*op)).transposed(0, 1);
        out.push(finish(turned.write("out", &[3, 4, 1]).gapped(1), *op, &[3, 4, 48], 0b100, false));
    }
    out
}

fn data(op: ReduceOp) -> crate::data::Data {
    // Squares up to 1 keep a long sum within f16's range.
    if op == ReduceOp::SumSquares { Range(-1.0, 1.0) } else { Range(-2.0, 2.0) }
}

fn reduce(case: CaseBuilder, op: ReduceOp, dims: &[usize], axes: u8, indices: bool) -> Case {
    let kept: Vec<usize> = dims.iter().enumerate().map(|(i, &d)| if axes >> i & 1 == 1 { 1 } else { d }).collect();
    finish(case.write("out", &kept).write_if(indices, "indices", &kept), op, dims, axes, indices)
}

fn finish(case: CaseBuilder, op: ReduceOp, dims: &[usize], axes: u8, indices: bool) -> Case {
    let terms: usize = dims.iter().enumerate().filter(|(i, _)| axes >> i & 1 == 1).map(|(_, &d)| d.max(1)).product();
    let case = if indices { case.typed(I64) } else { case };
    case.call(tolerance(op, terms), move |o| Reduce {
        op,
        axes,
        x: o.at("x"),
        out: o.at("out"),
        indices: o.get("indices"),
    })
}

fn tolerance(op: ReduceOp, terms: usize) -> Tolerance {
    match op {
        ReduceOp::Max | ReduceOp::Min => CHOSEN,
        ReduceOp::Mean => Tolerance::sum(1, 2.0, "a sum whose error is divided by its length"),
        ReduceOp::Sum | ReduceOp::SumSquares => Tolerance::sum(
            // Pairwise or in blocks: the error grows with the logarithm, not the length; 64 covers blocks of 1024.
            terms.min(64),
            2.0 * (terms as f64 / 64.0).max(1.0).sqrt(),
            "a sum in blocks of values up to 2",
        ),
    }
}

fn views(dtype: DType) -> Vec<Case> {
    let mut out = Vec::new();
    for (op_name, op) in OPS {
        let named = |view: &str| Case::on(dtype, format!("{op_name}_{view}"));
        let transposed = named("transposed").read("x", &[5, 7], data(op)).transposed(0, 1);
        out.push(reduce(transposed, op, &[5, 7], 0b10, false));
        let permuted = named("permuted").read("x", &[3, 4, 5], data(op)).transposed(0, 2);
        out.push(reduce(permuted, op, &[3, 4, 5], 0b101, false));
        let broadcast = named("broadcast").read("x", &[5, 1], data(op)).broadcast(&[5, 7]);
        out.push(reduce(broadcast, op, &[5, 7], 0b10, false));
        let offset = named("offset").read("x", &[5, 7], data(op)).offset(3).write("out", &[5, 1]).offset(1);
        out.push(finish(offset, op, &[5, 7], 0b10, false));
        let gapped = named("gapped").read("x", &[5, 7], data(op)).gapped(2).write("out", &[5, 1]).gapped(1);
        out.push(finish(gapped, op, &[5, 7], 0b10, false));
        let out_view =
            named("transposed_out").read("x", &[3, 4, 5], data(op)).write("out", &[3, 4, 1]).transposed(0, 1);
        out.push(finish(out_view, op, &[3, 4, 5], 0b100, false));
    }
    for (op_name, op) in &OPS[..1] {
        let case = Case::on(dtype, format!("{op_name}_of_nothing")).read("x", &[4, 0], data(*op));
        out.push(reduce(case, *op, &[4, 0], 0b10, false));
    }
    out
}

fn extrema(dtype: DType) -> Vec<Case> {
    let mut out = Vec::new();
    for (op_name, op) in [("max", ReduceOp::Max), ("min", ReduceOp::Min)] {
        for (name, dims, axes) in
            [("last", [5usize, 7], 0b10u8), ("first", [5, 7], 0b01), ("length_257", [3, 257], 0b10)]
        {
            // Few different values: the first of equals must win.
            let case = Case::on(dtype, format!("{op_name}_indices_{name}")).read("x", &dims, Ints(-3, 4));
            out.push(reduce(case, op, &dims, axes, true));
        }
        let values = vec![1.0, f64::NAN, 2.0, f64::NAN, 3.0, f64::INFINITY, f64::NEG_INFINITY, 0.0];
        let case = Case::on(dtype, format!("{op_name}_of_nan")).read("x", &[2, 4], Values(values)).expecting_nan();
        out.push(reduce(case, op, &[2, 4], 0b10, true));
        let infinite = Case::on(dtype, format!("{op_name}_of_infinities"));
        out.push(reduce(infinite.read("x", &[1, 3], Values(vec![f64::NEG_INFINITY])), op, &[1, 3], 0b10, true));
    }
    out
}
