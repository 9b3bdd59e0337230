//! Softmax, log-softmax and their gradients, over rows and over columns (an axis other than the last).

use memcore::DType;
use memcore::backend::kernel::{Softmax, SoftmaxGrad};

use super::common::{FLOATS, MANY, ROWS, is_for};
use crate::case::{Case, CaseBuilder};
use crate::data::Data::{Range, Values};
use crate::tolerance::Tolerance;

/// Shapes `[outer, n, inner]` for columns: name, sizes, elements before the first one.
const COLUMNS: [(&str, [usize; 3], usize); 10] = [
    // A single column is a row: one that is summed in several parts.
    ("rows_of_9001", [2, 9001, 1], 0),
    ("columns", [2, 5, 7], 0),
    ("offset_columns", [2, 4, 3], 3),
    ("no_slices", [0, 4, 3], 0),
    ("no_width", [3, 4, 0], 0),
    ("columns_of_one", [3, 1, 5], 0),
    ("pairs_of_columns", [1, 67, 2], 0),
    ("wide_columns", [1, 9, 1100], 0),
    ("long_columns", [2, 3000, 3], 0),
    ("many_columns", [MANY, 3, 2], 0),
];

/// Shapes of both kinds for a type.
fn shapes(dtype: DType) -> impl Iterator<Item = (&'static str, [usize; 3], usize)> {
    let rows = ROWS.into_iter().map(|(name, [rows, n], lead)| (name, [rows, n, 1], lead));
    rows.chain(COLUMNS).filter(move |shape| is_for(dtype, shape.1[0]))
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for log in [false, true] {
            for (name, dims, lead) in shapes(dtype) {
                let case = Case::on(dtype, named(log, name)).read("x", &dims, Range(-4.0, 4.0)).offset(lead);
                out.push(forward(case.write("out", &dims).offset(lead), log));
                out.push(backward(dtype, log, name, dims, lead));
            }
            for (name, dims) in [("no_columns", [3, 0, 1]), ("columns_of_none", [3, 0, 2])] {
                let none = Case::on(dtype, named(log, name)).read("x", &dims, Range(0.0, 1.0));
                out.push(forward(none.write("out", &dims), log));
            }
            out.extend(special(dtype, log));
        }
    }
    // Autocast computes softmax of 16-bit scores in f32, and converts the result back.
    let pairs = FLOATS.into_iter().flat_map(|from| FLOATS.map(|to| (from, to)));
    for (from, to) in pairs.filter(|(from, to)| from != to) {
        for (name, dims) in [("from", [5, 33, 1]), ("even_from", [3, 40, 1]), ("columns_from", [2, 33, 5])] {
            let name = format!("{name}_{}", crate::case::short(from));
            let case = Case::on(to, name).read("x", &dims, Range(-4.0, 4.0)).typed(from);
            out.push(forward(case.write("out", &dims), false));
        }
    }
    out
}

fn named(log: bool, name: &str) -> String {
    if log { format!("log_{name}") } else { name.to_string() }
}

fn forward(case: CaseBuilder, log: bool) -> Case {
    // A logarithm of some 3000 equal terms is near 8. From f32 to f64 the arithmetic is f64, so f32's error does not
    // matter.
    let tolerance =
        Tolerance::function(if log { 8.0 } else { 1.0 }, "exponentials, their sum, a quotient or logarithm");
    case.call(tolerance, move |o| Softmax { log, x: o.at("x"), out: o.at("out") })
}

/// Special values, over a row and over columns, some of which give equal results.
fn special(dtype: DType, log: bool) -> Vec<Case> {
    let inf = f64::INFINITY;
    let large = Values(vec![10_000.0, 9_999.0, -10_000.0, 9_998.0]);
    let masked = Values(vec![-inf, 1.0, -inf, 2.0, -inf, -inf, 0.5, -inf]);
    let case = |name: &str, dims: [usize; 3], data| {
        Case::on(dtype, named(log, name)).read("x", &dims, data).write("out", &dims)
    };
    vec![
        // If the maximum were not subtracted first, every exponential would be infinite.
        forward(case("large", [3, 4, 1], large.clone()), log),
        forward(case("large_columns", [1, 4, 3], large), log),
        forward(case("masked", [2, 4, 1], masked.clone()), log),
        forward(case("masked_columns", [1, 4, 2], masked), log),
        forward(case("masked_out", [2, 3, 1], Values(vec![-inf])).expecting_nan(), log),
        // The second column is masked out, the first is not.
        forward(case("masked_out_column", [1, 3, 2], Values(vec![1.0, -inf])).expecting_nan(), log),
    ]
}

fn backward(dtype: DType, log: bool, name: &str, dims: [usize; 3], lead: usize) -> Case {
    // Any numbers will do: the kernel's formula also holds for groups that are not a softmax.
    let y = if log { Range(-4.0, 0.0) } else { Range(0.0, 1.0) };
    let case = Case::on(dtype, named(log, name)).read("y", &dims, y).offset(lead);
    let case = case.read("grad", &dims, Range(-1.0, 1.0)).offset(lead).write("out", &dims).offset(lead);
    let tolerance = Tolerance::sum(dims[1] + 32, 1.0, "a sum over the group, times an exponential up to 1");
    case.call(tolerance, move |o| SoftmaxGrad {
        log,
        y: o.at("y"),
        grad: o.at("grad"),
        out: o.at("out"),
        workspace: None,
    })
}
