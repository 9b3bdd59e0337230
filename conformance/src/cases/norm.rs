//! Layer, root-mean-square and batch normalisation, and their gradients.

use memcore::DType;
use memcore::backend::kernel::{BatchNorm, BatchNormGrad, LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad};

use super::common::{FLOATS, MANY, MANY_LONG_ROWS, ROWS, is_for};
use crate::case::{Bound, Case, CaseBuilder};
use crate::data::Data::{self, Poison, Range};
use crate::tolerance::Tolerance;

/// Large enough to keep rstd moderate for rows of two or three close values.
const EPS: f64 = 0.1;

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for (name, dims, lead) in ROWS.into_iter().filter(|row| is_for(dtype, row.1[0])) {
            out.push(layer_norm(dtype, name, dims, lead, [true, true], Range(-2.0, 2.0)));
            out.push(layer_norm_grad(dtype, name, dims, lead, [true; 4]));
            out.push(rms_norm(dtype, name, dims, lead, true));
            out.push(rms_norm_grad(dtype, name, dims, lead, [true; 3]));
        }
        if dtype.is_half() {
            let (name, dims) = MANY_LONG_ROWS;
            out.push(layer_norm(dtype, name, dims, 0, [true, true], Range(-2.0, 2.0)));
            out.push(rms_norm(dtype, name, dims, 0, false));
            // So many rows that a backend may add up the parameters' gradients while it has them; of these lengths one pack or two of a thread.
            out.push(layer_norm_grad(dtype, name, dims, 0, [true; 4]));
            out.push(rms_norm_grad(dtype, name, dims, 0, [true; 3]));
            out.push(layer_norm_grad(dtype, "many_longer_rows", [1060, 2056], 0, [true; 4]));
            out.push(layer_norm_grad(dtype, "many_longer_rows_bias", [1060, 2056], 0, [false, true, false, true]));
        }
        for (name, affine) in [("plain", [false, false]), ("weight_only", [true, false])] {
            out.push(layer_norm(dtype, name, [5, 7], 0, affine, Range(-2.0, 2.0)));
        }
        // A mean far from 0: E[x²] − E[x]² would lose the variance.
        if !dtype.is_half() {
            out.push(layer_norm(dtype, "far_mean", [4, 257], 0, [true, true], Range(100.0, 101.0)));
            out.push(batch_norm(dtype, "far_mean", [8, 3, 33], Batch { data: Range(100.0, 101.0), ..TRAINING }));
        }
        out.push(rms_norm(dtype, "plain", [5, 7], 0, false));
        for (name, outs) in [("x_only", [true, true, false, false]), ("parameters_only", [true, false, true, true])] {
            out.push(layer_norm_grad(dtype, name, [5, 7], 0, outs));
        }
        out.push(layer_norm_grad(dtype, "plain", [5, 7], 0, [false, true, false, false]));
        out.push(rms_norm_grad(dtype, "plain", [5, 7], 0, [false, true, false]));
        out.push(rms_norm_grad(dtype, "parameters_only", [5, 7], 0, [true, false, true]));
        out.extend(batch_norms(dtype));
    }
    out
}

/// Rounding of the mean, of the deviation and of `rstd` (at most 1/√EPS), as large as sums of `n` terms make it.
fn tolerance(n: usize, magnitude: f64) -> Tolerance {
    Tolerance::sum((n as f64).sqrt() as usize + 16, 4.0 * magnitude, "mean and variance of the group, then arithmetic")
}

fn layer_norm(dtype: DType, name: &str, dims: [usize; 2], lead: usize, affine: [bool; 2], x: Data) -> Case {
    let magnitude = if let Range(_, high) = x { high } else { 1.0 };
    let case = Case::on(dtype, name).read("x", &dims, x).offset(lead);
    let case = case.read_if(affine[0], "weight", &[dims[1]], Range(0.5, 1.5));
    let case = case.read_if(affine[1], "bias", &[dims[1]], Range(-1.0, 1.0)).write("out", &dims).offset(lead);
    let case = case.write("mean", &[dims[0]]).typed(dtype.accumulator());
    case.write("rstd", &[dims[0]]).typed(dtype.accumulator()).call(tolerance(dims[1], magnitude), |o| LayerNorm {
        eps: EPS,
        x: o.at("x"),
        weight: o.get("weight"),
        bias: o.get("bias"),
        out: o.at("out"),
        mean: o.at("mean"),
        rstd: o.at("rstd"),
    })
}

/// `present`: weight, then the gradients of input, weight and bias. Statistics may be any numbers: the formula uses
/// them as given.
fn layer_norm_grad(dtype: DType, name: &str, dims: [usize; 2], lead: usize, present: [bool; 4]) -> Case {
    let [rows, n] = dims;
    let case = Case::on(dtype, name).read("grad", &dims, Range(-1.0, 1.0)).offset(lead);
    let case = case.read("x", &dims, Range(-2.0, 2.0)).offset(lead);
    let case = case.read("mean", &[rows], Range(-0.5, 0.5)).typed(dtype.accumulator());
    let case = case.read("rstd", &[rows], Range(0.5, 1.0)).typed(dtype.accumulator());
    let case = case.read_if(present[0], "weight", &[n], Range(0.5, 1.5));
    let case = case.write_if(present[1], "out_x", &dims);
    let case = if present[1] { case.offset(lead) } else { case };
    let case = case.write_if(present[2], "out_weight", &[n]).write_if(present[3], "out_bias", &[n]);
    case.call(gradient_tolerance(rows, n), |o| LayerNormGrad {
        grad: o.at("grad"),
        x: o.at("x"),
        mean: o.at("mean"),
        rstd: o.at("rstd"),
        weight: o.get("weight"),
        out_x: o.get("out_x"),
        out_weight: o.get("out_weight"),
        out_bias: o.get("out_bias"),
    })
}

fn gradient_tolerance(rows: usize, n: usize) -> Tolerance {
    // Sums over the row, and over all rows for the parameters. Beyond some thousand terms they are held to a random
    // walk.
    Tolerance::sum(rows.max(n).min(4096) + 16, 2.5, "sums of products up to 2.5 over a row or over all rows")
}

fn rms_norm(dtype: DType, name: &str, dims: [usize; 2], lead: usize, weight: bool) -> Case {
    let case = Case::on(dtype, name).read("x", &dims, Range(-2.0, 2.0)).offset(lead);
    let case = case.read_if(weight, "weight", &[dims[1]], Range(0.5, 1.5)).write("out", &dims).offset(lead);
    let case = case.write("rstd", &[dims[0]]).typed(dtype.accumulator());
    case.call(tolerance(dims[1], 2.0), |o| RmsNorm {
        eps: EPS,
        x: o.at("x"),
        weight: o.get("weight"),
        out: o.at("out"),
        rstd: o.at("rstd"),
    })
}

/// `present`: weight, then the gradients of input and weight.
fn rms_norm_grad(dtype: DType, name: &str, dims: [usize; 2], lead: usize, present: [bool; 3]) -> Case {
    let [rows, n] = dims;
    let case = Case::on(dtype, name).read("grad", &dims, Range(-1.0, 1.0)).offset(lead);
    let case = case.read("x", &dims, Range(-2.0, 2.0)).offset(lead);
    let case = case.read("rstd", &[rows], Range(0.5, 1.0)).typed(dtype.accumulator());
    let case = case.read_if(present[0], "weight", &[n], Range(0.5, 1.5)).write_if(present[1], "out_x", &dims);
    let case = if present[1] { case.offset(lead) } else { case };
    case.write_if(present[2], "out_weight", &[n]).call(gradient_tolerance(rows, n), |o| RmsNormGrad {
        grad: o.at("grad"),
        x: o.at("x"),
        rstd: o.at("rstd"),
        weight: o.get("weight"),
        out_x: o.get("out_x"),
        out_weight: o.get("out_weight"),
    })
}

/// Properties of a batch norm case.
#[derive(Clone)]
struct Batch {
    training: bool,
    affine: bool,
    running: bool,
    lead: usize,
    data: Data,
    /// True if parameters and running statistics have the accumulator type.
    wide: bool,
}

const TRAINING: Batch =
    Batch { training: true, affine: true, running: true, lead: 0, data: Range(-2.0, 2.0), wide: false };

fn batch_norms(dtype: DType) -> Vec<Case> {
    let evaluation = Batch { training: false, ..TRAINING };
    let without_running = Batch { running: false, ..TRAINING };
    let mut out = vec![
        batch_norm(dtype, "training", [4, 3, 5], TRAINING),
        batch_norm(dtype, "evaluation", [4, 3, 5], evaluation.clone()),
        batch_norm(dtype, "offset", [4, 3, 5], Batch { lead: 3, ..TRAINING }),
        batch_norm(dtype, "without_running", [4, 3, 5], without_running.clone()),
        batch_norm(dtype, "plain", [4, 3, 5], Batch { affine: false, ..TRAINING }),
        batch_norm(dtype, "plain_evaluation", [4, 3, 5], Batch { affine: false, ..evaluation.clone() }),
        batch_norm(dtype, "no_pixels_beside", [33, 3, 1], TRAINING),
        batch_norm(dtype, "length_257", [2, 2, 257], TRAINING),
        batch_norm(dtype, "long_channels", [3, 2, 1600], TRAINING),
        batch_norm(dtype, "long_odd_channels", [3, 2, 1601], TRAINING),
        batch_norm(dtype, "one", [1, 1, 1], without_running),
        batch_norm(dtype, "one_evaluation", [1, 1, 1], evaluation.clone()),
        batch_norm(dtype, "empty_evaluation", [0, 3, 5], evaluation.clone()),
    ];
    for training in [true, false] {
        let mode = if training { "training" } else { "evaluation" };
        let mut grad = |name: &str, dims, lead, present| {
            out.push(batch_norm_grad(dtype, &format!("{mode}_{name}"), dims, training, lead, present));
        };
        grad("contiguous", [4, 3, 5], 0, [true; 4]);
        grad("offset", [4, 3, 5], 3, [true; 4]);
        grad("x_only", [4, 3, 5], 0, [true, true, false, false]);
        grad("parameters_only", [4, 3, 5], 0, [true, false, true, true]);
        grad("plain", [4, 3, 5], 0, [false, true, false, false]);
        grad("length_257", [2, 2, 257], 0, [true; 4]);
        grad("long_channels", [3, 2, 1600], 0, [true; 4]);
        grad("long_odd_channels", [3, 2, 1601], 0, [true; 4]);
        grad("one", [1, 1, 1], 0, [true; 4]);
        grad("empty_channels", [2, 0, 5], 0, [true; 4]);
        if dtype == DType::F32 {
            grad("many_channels", [2, MANY, 1], 0, [true; 4]);
            grad("many_images", [MANY, 2, 1], 0, [true; 4]);
        }
        for (name, grad, x) in STRIDED {
            out.push(batch_norm_grad_strided(dtype, &format!("{mode}_{name}"), training, grad, x));
        }
        if dtype.is_half() {
            let f32 = |name: &str, dims, present| {
                batch_norm_grad_wide(dtype, &format!("{mode}_{name}_of_f32"), dims, training, 0, present, true)
            };
            out.push(f32("parameters", [4, 3, 5], [true; 4]));
            out.push(f32("offset_parameters", [2, 2, 257], [true; 4]));
            out.push(f32("narrow_parameters", [33, 3, 1], [true; 4]));
            out.push(f32("gradients", [4, 3, 5], [false, true, true, true]));
        }
    }
    if dtype.is_half() {
        let wide = Batch { wide: true, ..TRAINING };
        let unscaled = Batch { affine: false, ..wide.clone() };
        out.push(batch_norm(dtype, "training_in_f32", [4, 3, 5], wide.clone()));
        out.push(batch_norm(dtype, "offset_in_f32", [4, 3, 33], Batch { lead: 3, ..wide.clone() }));
        out.push(batch_norm(dtype, "no_pixels_beside_in_f32", [33, 3, 1], wide.clone()));
        out.push(batch_norm(dtype, "length_257_in_f32", [2, 2, 257], wide.clone()));
        out.push(batch_norm(dtype, "without_running_in_f32", [4, 3, 5], Batch { running: false, ..wide.clone() }));
        out.push(batch_norm(dtype, "plain_in_f32", [4, 3, 5], unscaled));
        out.push(batch_norm(dtype, "evaluation_in_f32", [4, 3, 5], Batch { training: false, ..wide.clone() }));
        out.push(batch_norm(dtype, "evaluation_of_rows_in_f32", [33, 3, 1], Batch { training: false, ..wide }));
    }
    if dtype == DType::F32 {
        out.push(batch_norm(dtype, "many_channels", [2, MANY, 1], TRAINING));
        out.push(batch_norm(dtype, "many_images", [MANY, 2, 1], TRAINING));
        out.push(batch_norm(dtype, "many_channels_evaluation", [1, MANY, 2], evaluation));
    }
    out
}

fn batch_norm(dtype: DType, name: &str, dims: [usize; 3], batch: Batch) -> Case {
    let Batch { training, affine, running, lead, data, wide } = batch;
    let (channels, statistic) = ([dims[1]], dtype.accumulator());
    let parameter = if wide { statistic } else { dtype };
    let magnitude = if let Range(_, high) = data { high } else { 1.0 };
    let case = Case::on(dtype, name).read("x", &dims, data).offset(lead);
    let mut case = case;
    if affine {
        case = case.read("weight", &channels, Range(0.5, 1.5)).typed(parameter);
        case = case.read("bias", &channels, Range(-1.0, 1.0)).typed(parameter);
    }
    if running {
        case = case.read("running_mean", &channels, Range(-1.0, 1.0)).typed(parameter);
        case = case.read("running_var", &channels, Range(0.5, 2.0)).typed(parameter);
    }
    case = case.write("out", &dims).offset(lead);
    if training {
        case = case.write("save_mean", &channels).typed(statistic);
        case = case.write("save_invstd", &channels).typed(statistic);
    }
    let call = move |o: &Bound| BatchNorm {
        training,
        momentum: 0.1,
        eps: EPS,
        x: o.at("x"),
        weight: o.get("weight"),
        bias: o.get("bias"),
        running_mean: o.get("running_mean"),
        running_var: o.get("running_var"),
        out: o.at("out"),
        save_mean: o.get("save_mean"),
        save_invstd: o.get("save_invstd"),
    };
    case.call(tolerance(dims[0] * dims[2], magnitude), call)
}

fn batch_norm_grad(
    dtype: DType,
    name: &str,
    dims: [usize; 3],
    training: bool,
    lead: usize,
    present: [bool; 4],
) -> Case {
    batch_norm_grad_wide(dtype, name, dims, training, lead, present, false)
}

/// `wide`: see [`Batch`].
fn batch_norm_grad_wide(
    dtype: DType,
    name: &str,
    dims: [usize; 3],
    training: bool,
    lead: usize,
    present: [bool; 4],
    wide: bool,
) -> Case {
    let case = Case::on(dtype, name).read("grad", &dims, Range(-1.0, 1.0)).offset(lead);
    let case = case.read("x", &dims, Range(-2.0, 2.0)).offset(lead);
    batch_norm_grad_of(case, dtype, dims, training, lead, present, wide)
}

/// Strides of `[4, 3, 5]`: dimensions in another order, gaps, one gradient for all.
const STRIDED: [(&str, [usize; 3], [usize; 3]); 4] = [
    ("channels_first", [5, 20, 1], [5, 20, 1]),
    ("channels_last", [15, 1, 3], [15, 5, 1]),
    ("gaps", [15, 5, 1], [48, 16, 3]),
    ("scalar", [0, 0, 0], [15, 5, 1]),
];

/// A gradient and an input that are not in row-major order.
fn batch_norm_grad_strided(dtype: DType, name: &str, training: bool, grad: [usize; 3], x: [usize; 3]) -> Case {
    let dims = [4, 3, 5];
    let case = Case::on(dtype, name).read("grad", &dims, Range(-1.0, 1.0)).strides(&grad);
    let case = case.read("x", &dims, Range(-2.0, 2.0)).strides(&x);
    batch_norm_grad_of(case, dtype, dims, training, 0, [true; 4], false)
}

/// Adds the other operands to a case with gradient and input.
fn batch_norm_grad_of(
    case: CaseBuilder,
    dtype: DType,
    dims: [usize; 3],
    training: bool,
    lead: usize,
    present: [bool; 4],
    wide: bool,
) -> Case {
    let (channels, statistic) = ([dims[1]], dtype.accumulator());
    let parameter = if wide { statistic } else { dtype };
    let typed = |case: CaseBuilder, present: bool| if present { case.typed(parameter) } else { case };
    let case = case.read("mean", &channels, Range(-0.5, 0.5)).typed(statistic);
    let case = case.read("invstd", &channels, Range(0.5, 1.0)).typed(statistic);
    let case = typed(case.read_if(present[0], "weight", &channels, Range(0.5, 1.5)), present[0]);
    let case = case.read_if(present[1], "out_x", &dims, Poison);
    let case = if present[1] { case.offset(lead) } else { case };
    let case = typed(case.write_if(present[2], "out_weight", &channels), present[2]);
    let case = typed(case.write_if(present[3], "out_bias", &channels), present[3]);
    case.call(gradient_tolerance(1, dims[0] * dims[2]), move |o| BatchNormGrad {
        training,
        grad: o.at("grad"),
        x: o.at("x"),
        mean: o.at("mean"),
        invstd: o.at("invstd"),
        weight: o.get("weight"),
        out_x: o.get("out_x"),
        out_weight: o.get("out_weight"),
        out_bias: o.get("out_bias"),
    })
}
