//! Kernels over rows, channels and windows: reductions, softmax, normalisation, losses, pooling, tables.

use memcore::DType;
use memcore::backend::kernel::{
    BatchNorm, BatchNormGrad, Gather, LayerNorm, LayerNormGrad, NllLoss, NllLossGrad, Pool2d, Pool2dGeometry,
    Pool2dGrad, PoolOp, Reduce, ReduceOp, Reduction, RmsNorm, RmsNormGrad, ScatterAdd, Softmax, SoftmaxGrad,
};

use super::kernel::{F32, FLOATS, Kernel, ROWS, Size};

const EPS: f64 = 1e-5;

/// Examples, channels, positions.
const PLANES: &[Size] = &[&[2, 8, 64], &[16, 32, 1024], &[32, 64, 8192]];
/// Examples and classes.
const CLASSES: &[Size] = &[&[32, 10], &[1024, 1000], &[4096, 4096]];
/// Examples, channels, side.
const IMAGES: &[Size] = &[&[1, 8, 16], &[16, 32, 32], &[32, 64, 112]];
/// Indices, length of a row, rows of the table.
const TABLES: &[Size] = &[&[32, 32, 64], &[1024, 256, 4096], &[16_384, 1024, 16_384]];

const HALVES: Pool2dGeometry = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        family: "reduce",
        name: "reduce_rows",
        sizes: ROWS,
        dtypes: FLOATS,
        build: |o, d| {
            let (x, out) = (o.read(d)?, o.write(&[d[0], 1])?);
            Ok(Reduce { op: ReduceOp::Sum, axes: 0b10, x, out, indices: None }.into())
        },
    },
    Kernel {
        family: "reduce",
        name: "reduce_columns",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| {
            let (x, out) = (o.read(d)?, o.write(&[1, d[1]])?);
            Ok(Reduce { op: ReduceOp::Sum, axes: 0b01, x, out, indices: None }.into())
        },
    },
    Kernel {
        family: "reduce",
        name: "reduce_all",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| {
            let (x, out) = (o.read(d)?, o.write(&[1, 1])?);
            Ok(Reduce { op: ReduceOp::Sum, axes: 0b11, x, out, indices: None }.into())
        },
    },
    Kernel {
        family: "softmax",
        name: "softmax",
        sizes: ROWS,
        dtypes: FLOATS,
        build: |o, d| {
            let d = &[d[0], d[1], 1];
            Ok(Softmax { log: false, x: o.read(d)?, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: "softmax",
        name: "softmax_grad",
        sizes: ROWS,
        dtypes: FLOATS,
        build: |o, d| {
            let d = &[d[0], d[1], 1];
            let (y, grad, out) = (o.read(d)?, o.read(d)?, o.write(d)?);
            Ok(SoftmaxGrad { log: false, y, grad, out, workspace: None }.into())
        },
    },
    Kernel {
        family: "softmax",
        name: "softmax_columns",
        sizes: PLANES,
        dtypes: F32,
        build: |o, d| Ok(Softmax { log: false, x: o.read(d)?, out: o.write(d)? }.into()),
    },
    Kernel {
        family: "softmax",
        name: "softmax_columns_grad",
        sizes: PLANES,
        dtypes: F32,
        build: |o, d| {
            let (y, grad, out) = (o.read(d)?, o.read(d)?, o.write(d)?);
            Ok(SoftmaxGrad { log: false, y, grad, out, workspace: None }.into())
        },
    },
    Kernel {
        family: "norm",
        name: "layer_norm",
        sizes: ROWS,
        dtypes: FLOATS,
        build: |o, d| {
            let (x, weight, bias) = (o.read(d)?, Some(o.read(&d[1..])?), Some(o.read(&d[1..])?));
            let statistic = o.dtype.accumulator();
            let (mean, rstd) = (o.write_as(statistic, &d[..1])?, o.write_as(statistic, &d[..1])?);
            Ok(LayerNorm { eps: EPS, x, weight, bias, out: o.write(d)?, mean, rstd }.into())
        },
    },
    Kernel {
        family: "norm",
        name: "layer_norm_grad",
        sizes: ROWS,
        dtypes: FLOATS,
        build: |o, d| {
            let (grad, x, mean, rstd) = (o.read(d)?, o.read(d)?, o.statistic(&d[..1])?, o.statistic(&d[..1])?);
            let (weight, out_x) = (Some(o.read(&d[1..])?), Some(o.write(d)?));
            let (out_weight, out_bias) = (Some(o.write(&d[1..])?), Some(o.write(&d[1..])?));
            Ok(LayerNormGrad { grad, x, mean, rstd, weight, out_x, out_weight, out_bias }.into())
        },
    },
    Kernel {
        family: "norm",
        name: "rms_norm",
        sizes: ROWS,
        dtypes: FLOATS,
        build: |o, d| {
            let (x, weight) = (o.read(d)?, Some(o.read(&d[1..])?));
            let rstd = o.write_as(o.dtype.accumulator(), &d[..1])?;
            Ok(RmsNorm { eps: EPS, x, weight, out: o.write(d)?, rstd }.into())
        },
    },
    Kernel {
        family: "norm",
        name: "rms_norm_grad",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| {
            let (grad, x, rstd, weight) = (o.read(d)?, o.read(d)?, o.statistic(&d[..1])?, Some(o.read(&d[1..])?));
            let (out_x, out_weight) = (Some(o.write(d)?), Some(o.write(&d[1..])?));
            Ok(RmsNormGrad { grad, x, rstd, weight, out_x, out_weight }.into())
        },
    },
    Kernel {
        family: "norm",
        name: "batch_norm",
        sizes: PLANES,
        dtypes: FLOATS,
        build: |o, d| {
            let channels = &d[1..2];
            let (x, weight, bias) = (o.read(d)?, Some(o.read(channels)?), Some(o.read(channels)?));
            let (running_mean, running_var) = (Some(o.read(channels)?), Some(o.full(o.dtype, channels, 1.0)?));
            let statistic = o.dtype.accumulator();
            let save_mean = Some(o.write_as(statistic, channels)?);
            let save_invstd = Some(o.write_as(statistic, channels)?);
            let (training, momentum, eps, out) = (true, 0.1, EPS, o.write(d)?);
            #[rustfmt::skip]
            let call = BatchNorm {
                training, momentum, eps, x, weight, bias, running_mean, running_var, out, save_mean, save_invstd,
            };
            Ok(call.into())
        },
    },
    Kernel {
        family: "norm",
        name: "batch_norm_grad",
        sizes: PLANES,
        dtypes: F32,
        build: |o, d| {
            let channels = &d[1..2];
            let (grad, x, mean, invstd) = (o.read(d)?, o.read(d)?, o.statistic(channels)?, o.statistic(channels)?);
            let (weight, out_x) = (Some(o.read(channels)?), Some(o.write(d)?));
            let (out_weight, out_bias) = (Some(o.write(channels)?), Some(o.write(channels)?));
            let training = true;
            Ok(BatchNormGrad { training, grad, x, mean, invstd, weight, out_x, out_weight, out_bias }.into())
        },
    },
    Kernel {
        family: "pool",
        name: "pool2d",
        sizes: IMAGES,
        dtypes: FLOATS,
        build: |o, d| {
            let (x, half) = (o.read(&[d[0], d[1], d[2], d[2]])?, [d[0], d[1], d[2] / 2, d[2] / 2]);
            let (out, indices) = (o.write(&half)?, Some(o.write_as(DType::I64, &half)?));
            Ok(Pool2d { op: PoolOp::Max, geometry: HALVES, x, out, indices }.into())
        },
    },
    Kernel {
        family: "pool",
        name: "pool2d_grad",
        sizes: IMAGES,
        dtypes: F32,
        build: |o, d| {
            let half = [d[0], d[1], d[2] / 2, d[2] / 2];
            let (grad, indices) = (o.read(&half)?, Some(o.full(DType::I64, &half, 0.0)?));
            let out = o.write(&[d[0], d[1], d[2], d[2]])?;
            Ok(Pool2dGrad { op: PoolOp::Max, geometry: HALVES, grad, indices, out }.into())
        },
    },
    Kernel {
        family: "loss",
        name: "nll_loss",
        sizes: CLASSES,
        dtypes: F32,
        build: |o, d| {
            let (log_probs, target) = (o.read(&[d[0], d[1], 1])?, o.classes(d)?);
            let (out, total_weight) = (o.write(&[1])?, o.write(&[1])?);
            let (reduction, ignore_index) = (Reduction::Mean, -100);
            Ok(NllLoss { reduction, ignore_index, log_probs, target, out, total_weight }.into())
        },
    },
    Kernel {
        family: "loss",
        name: "nll_loss_grad",
        sizes: CLASSES,
        dtypes: F32,
        build: |o, d| {
            let (grad, total_weight) = (o.full(o.dtype, &[1], 1.0)?, o.full(o.dtype, &[1], d[0] as f64)?);
            let (target, out) = (o.classes(d)?, o.write(&[d[0], d[1], 1])?);
            let (reduction, ignore_index) = (Reduction::Mean, -100);
            Ok(NllLossGrad { reduction, ignore_index, grad, target, total_weight, out }.into())
        },
    },
    Kernel {
        family: "index",
        name: "gather",
        sizes: TABLES,
        dtypes: F32,
        build: |o, d| {
            let (table, indices) = (o.read(&[d[2], d[1]])?, o.indices(d[0], d[2])?);
            Ok(Gather { table, indices, out: o.write(&d[..2])? }.into())
        },
    },
    Kernel {
        family: "index",
        name: "scatter_add",
        sizes: TABLES,
        dtypes: F32,
        build: |o, d| {
            let (src, indices, out) = (o.read(&d[..2])?, o.indices(d[0], d[2])?, o.write(&[d[2], d[1]])?);
            Ok(ScatterAdd { accumulate: false, padding_index: None, src, indices, out }.into())
        },
    },
];
