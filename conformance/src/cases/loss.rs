//! Negative log-likelihood and its gradient.

use memcore::DType::{self, I64};
use memcore::backend::kernel::{NllLoss, NllLossGrad, Reduction};

use super::common::{FLOATS, MANY, is_for};
use crate::case::Case;
use crate::data::Data::{self, Constant, Ints, Range, Values};
use crate::tolerance::Tolerance;

const IGNORED: i64 = -100;

const REDUCTIONS: [(&str, Reduction); 3] =
    [("mean", Reduction::Mean), ("none", Reduction::None), ("sum", Reduction::Sum)];

/// Name; examples, classes and positions of an example; elements before the first one.
const SHAPES: [(&str, [usize; 3], usize); 10] = [
    ("contiguous", [5, 7, 1], 0),
    ("offset", [5, 7, 1], 3),
    ("one", [1, 1, 1], 0),
    ("length_257", [257, 3, 1], 0),
    ("classes_257", [3, 257, 1], 0),
    ("many_rows", [MANY, 2, 1], 0),
    ("positions", [3, 5, 7], 0),
    ("positions_offset", [2, 3, 33], 5),
    ("positions_257", [2, 4, 257], 0),
    ("many_positions", [1, 3, MANY], 0),
];

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for (reduction_name, reduction) in REDUCTIONS {
            let named = |name: &str| format!("{reduction_name}_{name}");
            for (name, dims, lead) in SHAPES.into_iter().filter(|s| is_for(dtype, s.1[0] * s.1[2])) {
                let targets = || Ints(0, dims[1] as i64);
                out.push(forward(dtype, named(name), reduction, dims, lead, targets()));
                out.push(backward(dtype, named(name), reduction, dims, lead, targets()));
            }
            let some = || Values(vec![2.0, IGNORED as f64, 0.0, 3.0, IGNORED as f64]);
            out.push(forward(dtype, named("ignored"), reduction, [5, 4, 1], 0, some()));
            out.push(backward(dtype, named("ignored"), reduction, [5, 4, 1], 0, some()));
            let outside = Values(vec![1.0, 4.0, -1.0]);
            out.push(backward(dtype, named("outside"), reduction, [3, 4, 1], 0, outside));
            out.push(forward(dtype, named("positions_ignored"), reduction, [1, 4, 5], 0, some()));
            out.push(backward(dtype, named("positions_ignored"), reduction, [1, 4, 5], 0, some()));
        }
        out.push(turned_gradient(dtype));
        // A mean over nothing is 0/0; a sum, and no reduction, are defined.
        out.push(forward(dtype, "none_empty".into(), Reduction::None, [0, 4, 1], 0, Ints(0, 4)));
        out.push(forward(dtype, "sum_empty".into(), Reduction::Sum, [0, 4, 1], 0, Ints(0, 4)));
        out.push(backward(dtype, "none_empty".into(), Reduction::None, [0, 4, 1], 0, Ints(0, 4)));
        out.push(backward(dtype, "mean_empty".into(), Reduction::Mean, [0, 4, 1], 0, Ints(0, 4)));
        out.push(outside(dtype, Reduction::None));
        out.push(outside(dtype, Reduction::Mean));
    }
    out
}

fn scalar_or_targets(reduction: Reduction, [n, _, inner]: [usize; 3]) -> Vec<usize> {
    if reduction == Reduction::None { vec![n, inner] } else { vec![] }
}

fn case(
    dtype: DType,
    name: String,
    reduction: Reduction,
    dims: [usize; 3],
    lead: usize,
    targets: Data,
) -> crate::case::CaseBuilder {
    let case = Case::on(dtype, name).read("log_probs", &dims, Range(-4.0, 0.0)).offset(lead);
    let case = case.read("target", &[dims[0], dims[2]], targets).typed(I64).offset(lead);
    case.write("out", &scalar_or_targets(reduction, dims)).write("total_weight", &[])
}

fn forward(dtype: DType, name: String, reduction: Reduction, dims: [usize; 3], lead: usize, targets: Data) -> Case {
    // Summed in blocks, like `Reduce`: losses up to 4.
    let rows = ((dims[0] * dims[2]) as f64 / 64.0).max(1.0).sqrt();
    let tolerance = match reduction {
        Reduction::None => Tolerance::exact("one element, negated"),
        Reduction::Mean => Tolerance::sum(8, 4.0, "a sum whose error is divided by its length"),
        Reduction::Sum => Tolerance::sum(64, 4.0 * rows, "a sum in blocks of values up to 4"),
    };
    call(case(dtype, name, reduction, dims, lead, targets), reduction, tolerance)
}

fn call(case: crate::case::CaseBuilder, reduction: Reduction, tolerance: Tolerance) -> Case {
    case.call(tolerance, move |o| NllLoss {
        reduction,
        ignore_index: IGNORED,
        log_probs: o.at("log_probs"),
        target: o.at("target"),
        out: o.at("out"),
        total_weight: o.at("total_weight"),
    })
}

/// Targets that are not valid classes.
fn outside(dtype: DType, reduction: Reduction) -> Case {
    let name = if reduction == Reduction::None { "none_outside" } else { "mean_outside" };
    let targets = Values(vec![1.0, 4.0, -1.0]);
    let tolerance = Tolerance::exact("NaN, for want of an error");
    call(case(dtype, name.into(), reduction, [3, 4, 1], 0, targets).expecting_nan(), reduction, tolerance)
}

/// A gradient whose positions are outermost in memory.
fn turned_gradient(dtype: DType) -> Case {
    let case = Case::on(dtype, "none_turned").read("grad", &[3, 5], Range(0.5, 2.0)).strides(&[1, 3]);
    let case = case.read("target", &[3, 5], Ints(0, 4)).typed(I64);
    case_of_gradient(case.read("total_weight", &[], Constant(15.0)).write("out", &[3, 4, 5]), Reduction::None)
}

fn backward(dtype: DType, name: String, reduction: Reduction, dims: [usize; 3], lead: usize, targets: Data) -> Case {
    let case = Case::on(dtype, name).read("grad", &scalar_or_targets(reduction, dims), Range(0.5, 2.0));
    let case = case.read("target", &[dims[0], dims[2]], targets).typed(I64).offset(lead);
    let case = case.read("total_weight", &[], Constant((dims[0] * dims[2]) as f64)).write("out", &dims).offset(lead);
    case_of_gradient(case, reduction)
}

fn case_of_gradient(case: crate::case::CaseBuilder, reduction: Reduction) -> Case {
    case.call(Tolerance::arithmetic(0.0, "one quotient"), move |o| NllLossGrad {
        reduction,
        ignore_index: IGNORED,
        grad: o.at("grad"),
        target: o.at("target"),
        total_weight: o.at("total_weight"),
        out: o.at("out"),
    })
}
