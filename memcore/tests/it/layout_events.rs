//! Operators whose operands, results or gradients do not lie in row-major order allocate and free what PyTorch's do, in the same order, by the same
//! operators of the same nodes: copies are made where PyTorch makes them and nowhere else.
//!
//! The expectation is `golden/layout_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

use crate::common::labelled::{Row, against_other_releases, against_recordings, data, leaf, row, turned_back};
use crate::common::operators::{call, x};
use memcore::backend::kernel::Reduction;
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;

type One = fn(&Tensor) -> Result<Tensor>;

/// Softmax over each axis: of what is contiguous, of what is not, and with gradients that are not.
fn softmax(rows: &mut Vec<Row>) {
    type Softmax = fn(&Tensor, usize) -> Result<Tensor>;
    let both: [(&str, Softmax); 2] = [("softmax", ops::softmax), ("log_softmax", ops::log_softmax)];
    for (n, dtype) in [("f32", F32), ("f16", DType::F16)] {
        for (op, f) in both {
            let mut add = |form: &str,
                           axis: usize,
                           dims: &'static [usize],
                           run: fn(Softmax, &Tensor, usize) -> Result<Tensor>| {
                let inputs = move |d: &Device, t| vec![leaf(d, dims, t)];
                rows.push(row(format!("{op}_{form}_{axis}_{n}"), dtype, inputs, move |t| run(f, &t[0], axis)));
            };
            for axis in 0..3 {
                add("3d", axis, &[4, 24, 40], |f, x, axis| f(x, axis));
                add("4d", axis, &[2, 6, 10, 16], |f, x, axis| f(x, axis));
                add("3d_turned", axis, &[4, 40, 24], |f, x, axis| f(&ops::transpose(x, 1, 2)?, axis));
                add("3d_turned_grad", axis, &[4, 24, 40], |f, x, axis| {
                    ops::contiguous(&ops::transpose(&f(x, axis)?, 0, 1)?)
                });
                add("3d_summed", axis, &[4, 24, 40], |f, x, axis| ops::sum(&f(x, axis)?));
            }
            for axis in 0..4 {
                add("4d_turned", axis, &[2, 10, 16, 6], |f, x, axis| f(&ops::permute(x, &[0, 3, 1, 2])?, axis));
            }
        }
    }
}

/// Each with a transposed matrix (`[64, 256]` after the transposition), and also with a transposed gradient.
const BOTH: &str = "relu leaky_relu gelu gelu_tanh sigmoid tanh silu exp log sqrt rsqrt pow2 pow3 abs neg mul_scalar tril cast_bf16 rms_norm
    mul_self";
/// With a transposed matrix alone: the result has another shape.
const REDUCED: &str = "sum sum_dim mean_dim amax max_dim norm";
/// With a transposed gradient alone.
const GRADIENT: &str = "clone dropout";

/// Like [`BOTH`], with further arguments.
const OWN: [(&str, One); 4] = [
    ("cat", |x| ops::cat(&[x, x], 1)),
    ("layer_norm", |x| ops::layer_norm(x, &[256], None, None, 1e-5)),
    ("repeat", |x| ops::repeat(x, &[2, 1])),
    ("reshape", |x| ops::reshape(x, &[128, 128])),
];

fn of_turned(op: &str, f: impl Fn(&[Tensor]) -> Result<Tensor> + 'static) -> Row {
    row(format!("{op}_turned"), F32, |d, t| vec![leaf(d, &[256, 64], t)], move |t| f(&[ops::t(&t[0])?]))
}

fn with_turned_gradient(op: &str, f: impl Fn(&[Tensor]) -> Result<Tensor> + 'static) -> Row {
    row(format!("{op}_turned_grad"), F32, x, move |t| turned_back(&f(t)?))
}

fn of_one(rows: &mut Vec<Row>) {
    rows.extend(BOTH.split_whitespace().chain(REDUCED.split_whitespace()).map(|op| of_turned(op, call(op))));
    rows.extend(
        BOTH.split_whitespace().chain(GRADIENT.split_whitespace()).map(|op| with_turned_gradient(op, call(op))),
    );
    for (op, f) in OWN {
        rows.extend([of_turned(op, move |t| f(&t[0])), with_turned_gradient(op, move |t| f(&t[0]))]);
    }
    rows.push(of_turned("stack", |t| ops::stack(&[&t[0], &t[0]], 0)));
    let mut beside = |op: &str, of: fn(&Device, DType) -> Tensor| {
        let f = call(op);
        let inputs = move |d: &Device, t| vec![leaf(d, &[256, 64], t), of(d, t)];
        rows.push(row(format!("{op}_turned"), F32, inputs, move |t| f(&[ops::t(&t[0])?, t[1].clone()])));
    };
    beside("masked_fill", |d, _| data(d, &[64, 256], DType::Bool));
    beside("mm", |d, t| leaf(d, &[256, 32], t));
    beside("nll_loss", |d, _| data(d, &[64], DType::I64));
    beside("cross_entropy", |d, _| data(d, &[64], DType::I64));
}

/// Each with one or both operands transposed.
fn of_two(rows: &mut Vec<Row>) {
    const PLAIN: &[usize] = &[64, 256];
    const TURNED: &[usize] = &[256, 64];
    for (form, dims) in [("first", [TURNED, PLAIN]), ("second", [PLAIN, TURNED]), ("both", [TURNED, TURNED])] {
        for op in ["mul", "div", "maximum", "mse", "l1", "where"] {
            let mask = move |d: &Device| (op == "where").then(|| data(d, PLAIN, DType::Bool));
            let inputs =
                move |d: &Device, t| [leaf(d, dims[0], t), leaf(d, dims[1], t)].into_iter().chain(mask(d)).collect();
            let turned = |x: &Tensor| if x.dims() == TURNED { ops::t(x) } else { Ok(x.clone()) };
            let f = call(op);
            let run = move |t: &[Tensor]| f(&t.iter().map(turned).collect::<Result<Vec<_>>>()?);
            rows.push(row(format!("{op}_turned_{form}"), F32, inputs, run));
        }
    }
}

/// Pooling of images with the channels outermost in memory.
fn pooling(rows: &mut Vec<Row>) {
    for op in ["max_pool2d", "avg_pool2d", "adaptive_avg_pool2d_1", "adaptive_avg_pool2d_4"] {
        let (inputs, f) = (|d: &Device, t| vec![leaf(d, &[16, 8, 20, 20], t)], call(op));
        rows.push(row(format!("{op}_turned"), F32, inputs, move |t| f(&[ops::transpose(&t[0], 0, 1)?])));
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    softmax(&mut rows);
    of_one(&mut rows);
    of_two(&mut rows);
    pooling(&mut rows);
    for (name, reduction) in [("l1_sum", Reduction::Sum), ("l1_none", Reduction::None)] {
        let inputs = |d: &Device, t| vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], t)];
        rows.push(row(name, F32, inputs, move |t| ops::l1_loss(&t[0], &t[1], reduction)));
    }
    rows
}

against_recordings! {
    "../golden/layout_events.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

against_other_releases! { "../golden/releases/layout_events.json", rows(), |profile| profile }
