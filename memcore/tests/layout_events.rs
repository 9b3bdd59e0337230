//! Operators whose operands, results or gradients do not lie in row-major order allocate and free what PyTorch's do, in the same order, by the same
//! operators of the same nodes: copies are made where PyTorch makes them and nowhere else.
//!
//! The expectation is `golden/layout_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

mod common;
#[path = "common/labelled.rs"]
mod labelled;

use labelled::{Row, against_recordings, assert_same, data, leaf};
use memcore::backend::kernel::{Pool2dGeometry, Reduction};
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;

type One = fn(&Tensor) -> Result<Tensor>;
type Two = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn row(
    name: impl Into<String>,
    dtype: DType,
    inputs: impl Fn(&Device, DType) -> Vec<Tensor> + 'static,
    run: impl Fn(&[Tensor], &[Tensor]) -> Result<Tensor> + 'static,
) -> Row {
    let (parameters, inputs, run) = (Box::new(|_: &Device, _| Vec::new()), Box::new(inputs), Box::new(run));
    Row { name: name.into(), dtype, autocast: false, records: true, parameters, inputs, run }
}

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
                rows.push(row(format!("{op}_{form}_{axis}_{n}"), dtype, inputs, move |_, t| run(f, &t[0], axis)));
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

/// Each of a transposed matrix (`[64, 256]` in the end), and most also with a transposed gradient.
const ONE: &[(&str, One)] = &[
    ("relu", ops::relu),
    ("leaky_relu", |x| ops::leaky_relu(x, 0.01)),
    ("gelu", ops::gelu),
    ("gelu_tanh", ops::gelu_tanh),
    ("sigmoid", ops::sigmoid),
    ("tanh", ops::tanh),
    ("silu", ops::silu),
    ("exp", ops::exp),
    ("log", ops::log),
    ("sqrt", ops::sqrt),
    ("rsqrt", ops::rsqrt),
    ("pow2", |x| ops::pow(x, 2.0)),
    ("pow3", |x| ops::pow(x, 3.0)),
    ("abs", ops::abs),
    ("neg", ops::neg),
    ("mul_scalar", |x| ops::mul_scalar(x, 3.0)),
    ("tril", |x| ops::tril(x, 0)),
    ("cast_bf16", |x| ops::cast(x, DType::BF16)),
    ("cat", |x| ops::cat(&[x, x], 1)),
    ("layer_norm", |x| ops::layer_norm(x, &[256], None, None, 1e-5)),
    ("rms_norm", |x| ops::rms_norm(x, &[256], None, 1e-6)),
    ("repeat", |x| ops::repeat(x, &[2, 1])),
    ("mul_self", |x| ops::mul(x, x)),
    ("reshape", |x| ops::reshape(x, &[128, 128])),
];

/// Those whose result has another shape.
const REDUCED: &[(&str, One)] = &[
    ("sum", ops::sum),
    ("sum_dim", |x| ops::sum_axes(x, &[0], false)),
    ("mean_dim", |x| ops::mean_axes(x, &[1], false)),
    ("amax", |x| ops::amax(x, &[1], false)),
    ("max_dim", |x| Ok(ops::max_axis(x, 1, false)?.0)),
    ("norm", ops::norm),
    ("stack", |x| ops::stack(&[x, x], 0)),
];

fn of_one(rows: &mut Vec<Row>) {
    let turned = |d: &Device, t| vec![leaf(d, &[256, 64], t)];
    for &(op, f) in ONE.iter().chain(REDUCED) {
        rows.push(row(format!("{op}_turned"), F32, turned, move |_, t| f(&ops::t(&t[0])?)));
    }
    for &(op, f) in ONE {
        let run = move |_: &[Tensor], t: &[Tensor]| ops::contiguous(&ops::t(&f(&t[0])?)?);
        rows.push(row(format!("{op}_turned_grad"), F32, |d, t| vec![leaf(d, &[64, 256], t)], run));
    }
    let with_turned_gradient: [(&str, One); 2] = [("clone", ops::clone), ("dropout", |x| ops::dropout(x, 0.1, true))];
    for (op, f) in with_turned_gradient {
        let run = move |_: &[Tensor], t: &[Tensor]| ops::contiguous(&ops::t(&f(&t[0])?)?);
        rows.push(row(format!("{op}_turned_grad"), F32, |d, t| vec![leaf(d, &[64, 256], t)], run));
    }
    let beside = |dims: &'static [usize], other: &'static [usize], dtype| {
        move |d: &Device, t| vec![leaf(d, dims, t), data(d, other, dtype)]
    };
    rows.extend([
        row("masked_fill_turned", F32, beside(&[256, 64], &[64, 256], DType::Bool), |_, t| {
            ops::masked_fill(&ops::t(&t[0])?, &t[1], -1.0)
        }),
        row(
            "mm_turned",
            F32,
            |d, t| vec![leaf(d, &[256, 64], t), leaf(d, &[256, 32], t)],
            |_, t| ops::mm(&ops::t(&t[0])?, &t[1]),
        ),
        row("nll_loss_turned", F32, beside(&[256, 64], &[64], DType::I64), |_, t| {
            ops::nll_loss(&ops::t(&t[0])?, &t[1], Reduction::Mean)
        }),
        row("cross_entropy_turned", F32, beside(&[256, 64], &[64], DType::I64), |_, t| {
            ops::cross_entropy(&ops::t(&t[0])?, &t[1], Reduction::Mean)
        }),
    ]);
}

/// Each with one or both operands transposed.
const TWO: &[(&str, Two)] = &[
    ("mul", ops::mul),
    ("div", ops::div),
    ("maximum", ops::maximum),
    ("mse", |a, b| ops::mse_loss(a, b, Reduction::Mean)),
    ("l1", |a, b| ops::l1_loss(a, b, Reduction::Mean)),
];

fn of_two(rows: &mut Vec<Row>) {
    const PLAIN: &[usize] = &[64, 256];
    const TURNED: &[usize] = &[256, 64];
    for (form, dims) in [("first", [TURNED, PLAIN]), ("second", [PLAIN, TURNED]), ("both", [TURNED, TURNED])] {
        let turned = |x: &Tensor| if x.dims() == TURNED { ops::t(x) } else { Ok(x.clone()) };
        let inputs = move |d: &Device, t| vec![leaf(d, dims[0], t), leaf(d, dims[1], t)];
        for &(op, f) in TWO {
            let run = move |_: &[Tensor], t: &[Tensor]| f(&turned(&t[0])?, &turned(&t[1])?);
            rows.push(row(format!("{op}_turned_{form}"), F32, inputs, run));
        }
        let inputs = move |d: &Device, t| vec![leaf(d, dims[0], t), leaf(d, dims[1], t), data(d, PLAIN, DType::Bool)];
        let run = move |_: &[Tensor], t: &[Tensor]| ops::where_(&t[2], &turned(&t[0])?, &turned(&t[1])?);
        rows.push(row(format!("where_turned_{form}"), F32, inputs, run));
    }
}

/// Pooling of pictures whose channels lie outermost.
fn pooling(rows: &mut Vec<Row>) {
    const HALVED: Pool2dGeometry = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
    let all: [(&str, One); 4] = [
        ("max_pool2d", |x| ops::max_pool2d(x, HALVED)),
        ("avg_pool2d", |x| ops::avg_pool2d(x, HALVED)),
        ("adaptive_avg_pool2d_1", |x| ops::adaptive_avg_pool2d(x, [1, 1])),
        ("adaptive_avg_pool2d_4", |x| ops::adaptive_avg_pool2d(x, [4, 4])),
    ];
    for (op, f) in all {
        let inputs = |d: &Device, t| vec![leaf(d, &[16, 8, 20, 20], t)];
        rows.push(row(format!("{op}_turned"), F32, inputs, move |_, t| f(&ops::transpose(&t[0], 0, 1)?)));
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
        rows.push(row(name, F32, inputs, move |_, t| ops::l1_loss(&t[0], &t[1], reduction)));
    }
    rows
}

against_recordings! {
    "golden/layout_events.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

mod other_releases {
    use super::*;

    against_recordings! {
        "golden/releases/layout_events.json", rows();
        as_pytorch_2_7: "2.7", Profile::named("torch-2.7-sm90").unwrap();
        as_pytorch_2_8: "2.8", Profile::named("torch-2.8-sm90").unwrap();
        as_pytorch_2_9: "2.9", Profile::named("torch-2.9-sm90").unwrap();
        as_pytorch_2_10: "2.10", Profile::named("torch-2.10-sm90").unwrap();
        as_pytorch_2_12: "2.12", Profile::named("torch-2.12-sm90").unwrap();
        as_pytorch_2_13: "2.13", Profile::named("torch-2.13-sm90").unwrap();
        as_pytorch_2_14: "2.14", Profile::named("torch-2.14-sm90").unwrap();
    }
}
