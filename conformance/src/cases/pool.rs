//! Max and average pooling and their gradient.

use memcore::DType::{self, F32, I64};
use memcore::backend::kernel::{Pool2d, Pool2dGeometry, Pool2dGrad, PoolOp};

use super::common::{FLOATS, MANY};
use crate::case::Case;
use crate::data::Data::{Ints, Range, Values};
use crate::tolerance::Tolerance;

const CHOSEN: Tolerance = Tolerance::exact("an element of the window, and its place");

/// Name, input, window, stride, padding.
type Problem = (&'static str, [usize; 4], [usize; 2], [usize; 2], [usize; 2]);

const PROBLEMS: [Problem; 11] = [
    ("contiguous", [2, 3, 6, 4], [2, 2], [2, 2], [0, 0]),
    ("overlapping", [2, 3, 7, 6], [3, 3], [1, 2], [0, 0]),
    ("padded", [2, 2, 7, 7], [3, 3], [2, 2], [1, 1]),
    ("oblong", [1, 2, 5, 9], [1, 4], [1, 3], [0, 2]),
    ("unreached", [1, 2, 5, 5], [2, 2], [2, 2], [0, 0]),
    ("global", [2, 3, 5, 4], [5, 4], [1, 1], [0, 0]),
    ("empty", [0, 2, 4, 4], [2, 2], [2, 2], [0, 0]),
    ("one", [1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
    ("length_257", [1, 1, 1, 257], [1, 2], [1, 2], [0, 1]),
    ("many_planes", [1, MANY, 1, 2], [1, 2], [1, 1], [0, 0]),
    ("many_pixels", [1, 1, 260, 260], [2, 2], [1, 1], [0, 0]),
];

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for problem in PROBLEMS {
            if dtype != F32 && problem.1.iter().product::<usize>() >= MANY {
                continue;
            }
            for op in [PoolOp::Max, PoolOp::Average] {
                out.extend(forward(dtype, problem, op, 0));
                out.extend(backward(dtype, problem, op, 0));
            }
        }
        let offset = ("offset", PROBLEMS[1].1, PROBLEMS[1].2, PROBLEMS[1].3, PROBLEMS[1].4);
        for op in [PoolOp::Max, PoolOp::Average] {
            out.extend(forward(dtype, offset, op, 3));
            out.extend(backward(dtype, offset, op, 3));
        }
        out.push(of_nan(dtype));
    }
    out
}

fn named(op: PoolOp, name: &str) -> String {
    format!("{}_{name}", if op == PoolOp::Max { "max" } else { "average" })
}

/// Returns the geometry and the sizes of the result; `None` for a problem that does not fit, which is a mistake in the
/// table.
fn sized((_, x, window, stride, padding): Problem) -> Option<(Pool2dGeometry, [usize; 4])> {
    let geometry = Pool2dGeometry { window, stride, padding };
    let [oh, ow] = geometry.output_size([x[2], x[3]]).ok()?;
    Some((geometry, [x[0], x[1], oh, ow]))
}

fn forward(dtype: DType, problem: Problem, op: PoolOp, lead: usize) -> Option<Case> {
    let (geometry, y) = sized(problem)?;
    let max = op == PoolOp::Max;
    // Few different values, all negative: the first of equals must win, and the padding never.
    let data = if max { Ints(-5, 0) } else { Range(-1.0, 1.0) };
    let case = Case::on(dtype, named(op, problem.0)).read("x", &problem.1, data).offset(lead);
    let case = case.write("out", &y).offset(lead).write_if(max, "indices", &y);
    let case = if max { case.typed(I64) } else { case };
    let size = geometry.window[0] * geometry.window[1];
    let tolerance = if max { CHOSEN } else { Tolerance::sum(size, 1.0, "a sum over the window of values up to 1") };
    Some(case.call(tolerance, move |o| Pool2d {
        op,
        geometry,
        x: o.at("x"),
        out: o.at("out"),
        indices: o.get("indices"),
    }))
}

fn of_nan(dtype: DType) -> Case {
    let geometry = Pool2dGeometry { window: [1, 3], stride: [1, 3], padding: [0, 0] };
    let values = vec![1.0, f64::NAN, f64::NAN, f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    let case = Case::on(dtype, "max_of_nan").read("x", &[1, 1, 2, 3], Values(values)).expecting_nan();
    let case = case.write("out", &[1, 1, 2, 1]).write("indices", &[1, 1, 2, 1]).typed(I64);
    case.call(CHOSEN, move |o| Pool2d {
        op: PoolOp::Max,
        geometry,
        x: o.at("x"),
        out: o.at("out"),
        indices: Some(o.at("indices")),
    })
}

fn backward(dtype: DType, problem: Problem, op: PoolOp, lead: usize) -> Option<Case> {
    let (geometry, y) = sized(problem)?;
    let max = op == PoolOp::Max;
    let case = Case::on(dtype, named(op, problem.0)).read("grad", &y, Range(-1.0, 1.0)).offset(lead);
    let case = case.read_if(max, "indices", &y, Values(places_in_windows(&geometry, problem.1, y)));
    let case = if max { case.typed(I64) } else { case };
    let size = geometry.window[0] * geometry.window[1];
    let tolerance = Tolerance::sum(size, 1.0, "a sum over the windows that cover an element");
    Some(case.write("out", &problem.1).offset(lead).call(tolerance, move |o| Pool2dGrad {
        op,
        geometry,
        grad: o.at("grad"),
        indices: o.get("indices"),
        out: o.at("out"),
    }))
}

/// An index inside every window: the first corner or the last, in turn.
fn places_in_windows(g: &Pool2dGeometry, x: [usize; 4], y: [usize; 4]) -> Vec<f64> {
    let mut out = Vec::new();
    for at in 0..y.iter().product::<usize>() {
        let (i, j) = (at / y[3] % y[2], at % y[3]);
        let corner = |axis: usize, window: usize| {
            let start = (window * g.stride[axis]).saturating_sub(g.padding[axis]);
            let end = (window * g.stride[axis] + g.window[axis] - g.padding[axis]).min(x[2 + axis]);
            if at % 3 == 0 { end - 1 } else { start }
        };
        out.push((corner(0, i) * x[3] + corner(1, j)) as f64);
    }
    // The data of an operand without elements is not read, but must not be empty either.
    if out.is_empty() { vec![0.0] } else { out }
}
