//! Softmax, log-softmax and their gradients.

use memcore::DType::{self, F32, F64};
use memcore::backend::kernel::{Softmax, SoftmaxGrad};

use super::{FLOATS, ROWS, is_for};
use crate::case::{Case, CaseBuilder};
use crate::data::Data::{Range, Values};
use crate::tolerance::Tolerance;

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for log in [false, true] {
            for (name, dims, lead) in ROWS.into_iter().filter(|row| is_for(dtype, row.1[0])) {
                let case = Case::on(dtype, named(log, name)).read("x", &dims, Range(-4.0, 4.0)).offset(lead);
                out.push(forward(case.write("out", &dims).offset(lead), log));
                out.push(backward(dtype, log, name, dims, lead));
            }
            let none = Case::on(dtype, named(log, "no_columns")).read("x", &[3, 0], Range(0.0, 1.0));
            out.push(forward(none.write("out", &[3, 0]), log));
            out.extend(special(dtype, log));
        }
    }
    // Autocast takes the softmax of 16-bit scores in f32, and back.
    for (from, to) in [(DType::F16, F32), (DType::BF16, F32), (F32, DType::F16), (F32, DType::BF16), (F32, F64)] {
        let name = format!("from_{}", crate::case::short(from));
        let case = Case::on(to, name).read("x", &[5, 33], Range(-4.0, 4.0)).typed(from);
        out.push(forward(case.write("out", &[5, 33]), false));
    }
    out
}

fn named(log: bool, name: &str) -> String {
    if log { format!("log_{name}") } else { name.to_string() }
}

fn forward(case: CaseBuilder, log: bool) -> Case {
    // A logarithm of some 3000 equal terms is near 8; f32 → f64 keeps f32's arithmetic out of the question.
    let tolerance =
        Tolerance::function(if log { 8.0 } else { 1.0 }, "exponentials, their sum, a quotient or logarithm");
    case.call(tolerance, move |o| Softmax { log, x: o.at("x"), out: o.at("out") })
}

fn special(dtype: DType, log: bool) -> Vec<Case> {
    let inf = f64::INFINITY;
    let large = Values(vec![10_000.0, 9_999.0, -10_000.0, 9_998.0]);
    let masked = Values(vec![-inf, 1.0, -inf, 2.0, -inf, -inf, 0.5, -inf]);
    let mut out = vec![
        // Without the maximum taken off first, every exponential would be infinite.
        forward(Case::on(dtype, named(log, "large")).read("x", &[3, 4], large).write("out", &[3, 4]), log),
        forward(Case::on(dtype, named(log, "masked")).read("x", &[2, 4], masked).write("out", &[2, 4]), log),
    ];
    let nothing = Case::on(dtype, named(log, "masked_out")).read("x", &[2, 3], Values(vec![-inf])).expecting_nan();
    out.push(forward(nothing.write("out", &[2, 3]), log));
    out
}

fn backward(dtype: DType, log: bool, name: &str, dims: [usize; 2], lead: usize) -> Case {
    // Any numbers will do: the kernel's formula holds for rows that are no softmax too.
    let y = if log { Range(-4.0, 0.0) } else { Range(0.0, 1.0) };
    let case = Case::on(dtype, named(log, name)).read("y", &dims, y).offset(lead);
    let case = case.read("grad", &dims, Range(-1.0, 1.0)).offset(lead).write("out", &dims).offset(lead);
    let tolerance = Tolerance::sum(dims[1] + 32, 1.0, "a sum over the row, times an exponential up to 1");
    case.call(tolerance, move |o| SoftmaxGrad {
        log,
        y: o.at("y"),
        grad: o.at("grad"),
        out: o.at("out"),
        workspace: None,
    })
}
