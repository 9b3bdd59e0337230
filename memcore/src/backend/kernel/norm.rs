//! Layer, root-mean-square and batch normalisation.
//!
//! Statistics have the accumulator type of the input (f32 for 16-bit floats). Batch normalisation also takes a 16-bit
//! input with f32 parameters, as in PyTorch: they occur under autocast, and in a network that was cast without its
//! normalisation layers.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// Each row of `x` `[rows, n]`: `out = (x − mean)·rstd·weight + bias`, with `rstd = 1/√(var + eps)` and the biased variance.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f64,
    /// `[rows, n]`, contiguous, as all operands here.
    pub x: Operand,
    /// `[n]`
    pub weight: Option<Operand>,
    /// `[n]`
    pub bias: Option<Operand>,
    /// `[rows, n]`
    pub out: Operand,
    /// `[rows]`, accumulator type.
    pub mean: Operand,
    /// `[rows]`, accumulator type.
    pub rstd: Operand,
}
kernel!(LayerNorm, "layer_norm", in_place: false, [eps], { x: Read, weight: Read, bias: Read, out: Write, mean: Write, rstd: Write }, flops: |k| 8 * k.out.numel() as u64);
impl LayerNorm {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        let [rows, n] = rows(c, "x", &self.x)?;
        same(c, "out", &self.out, &self.x)?;
        parameter(c, "weight", &self.weight, &self.x, n)?;
        parameter(c, "bias", &self.bias, &self.x, n)?;
        statistic(c, "mean", &self.mean, &self.x, rows)?;
        statistic(c, "rstd", &self.rstd, &self.x, rows)
    }
}

/// Gradients of [`LayerNorm`], for the output operands that are present. With `x̂ = (x − mean)·rstd` and `g =
/// grad·weight`, `out_x = rstd·(g − mean(g) − x̂·mean(g·x̂))`, `out_weight = Σ_rows grad·x̂`, `out_bias = Σ_rows grad`.
#[derive(Clone, Debug)]
pub struct LayerNormGrad {
    /// Gradient of the result, `[rows, n]`.
    pub grad: Operand,
    /// The input, `[rows, n]`.
    pub x: Operand,
    /// `[rows]`
    pub mean: Operand,
    /// `[rows]`
    pub rstd: Operand,
    /// `[n]`
    pub weight: Option<Operand>,
    /// Gradient of the input, `[rows, n]`.
    pub out_x: Option<Operand>,
    /// Gradient of the weight, `[n]`.
    pub out_weight: Option<Operand>,
    /// Gradient of the bias, `[n]`.
    pub out_bias: Option<Operand>,
}
kernel!(LayerNormGrad, "layer_norm_grad", in_place: false, [], { grad: Read, x: Read, mean: Read, rstd: Read, weight: Read, out_x: Write, out_weight: Write, out_bias: Write }, flops: |k| 14 * k.x.numel() as u64);
impl LayerNormGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        let [rows, n] = rows(c, "x", &self.x)?;
        same(c, "grad", &self.grad, &self.x)?;
        statistic(c, "mean", &self.mean, &self.x, rows)?;
        statistic(c, "rstd", &self.rstd, &self.x, rows)?;
        parameter(c, "weight", &self.weight, &self.x, n)?;
        if let Some(out) = &self.out_x {
            same(c, "out_x", out, &self.x)?;
        }
        parameter(c, "out_weight", &self.out_weight, &self.x, n)?;
        parameter(c, "out_bias", &self.out_bias, &self.x, n)
    }
}

/// Each row of `x` `[rows, n]`: `out = x·rstd·weight`, with `rstd = 1/√(mean(x²) + eps)`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f64,
    /// `[rows, n]`, contiguous, as all operands here.
    pub x: Operand,
    /// `[n]`
    pub weight: Option<Operand>,
    /// `[rows, n]`
    pub out: Operand,
    /// `[rows]`, accumulator type.
    pub rstd: Operand,
}
kernel!(RmsNorm, "rms_norm", in_place: false, [eps], { x: Read, weight: Read, out: Write, rstd: Write }, flops: |k| 5 * k.out.numel() as u64);
impl RmsNorm {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        let [rows, n] = rows(c, "x", &self.x)?;
        same(c, "out", &self.out, &self.x)?;
        parameter(c, "weight", &self.weight, &self.x, n)?;
        statistic(c, "rstd", &self.rstd, &self.x, rows)
    }
}

/// Gradients of [`RmsNorm`]: with `x̂ = x·rstd` and `g = grad·weight`, `out_x = rstd·(g − x̂·mean(g·x̂))`, `out_weight = Σ_rows grad·x̂`.
#[derive(Clone, Debug)]
pub struct RmsNormGrad {
    /// Gradient of the result, `[rows, n]`.
    pub grad: Operand,
    /// The input, `[rows, n]`.
    pub x: Operand,
    /// `[rows]`
    pub rstd: Operand,
    /// `[n]`
    pub weight: Option<Operand>,
    /// Gradient of the input, `[rows, n]`.
    pub out_x: Option<Operand>,
    /// Gradient of the weight, `[n]`.
    pub out_weight: Option<Operand>,
}
kernel!(RmsNormGrad, "rms_norm_grad", in_place: false, [], { grad: Read, x: Read, rstd: Read, weight: Read, out_x: Write, out_weight: Write }, flops: |k| 10 * k.x.numel() as u64);
impl RmsNormGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        let [rows, n] = rows(c, "x", &self.x)?;
        same(c, "grad", &self.grad, &self.x)?;
        statistic(c, "rstd", &self.rstd, &self.x, rows)?;
        parameter(c, "weight", &self.weight, &self.x, n)?;
        if let Some(out) = &self.out_x {
            same(c, "out_x", out, &self.x)?;
        }
        parameter(c, "out_weight", &self.out_weight, &self.x, n)
    }
}

/// Each channel of `x` `[n, c, l]` (l = height·width): `out = (x − mean)·invstd·weight + bias`.
///
/// In training, the mean and the biased variance are those of the batch. They are written to `save_mean` and
/// `save_invstd`, and the running statistics become `(1 − momentum)·running + momentum·batch`, with the unbiased
/// variance (as in PyTorch). Otherwise the running statistics are used, `save_mean` and `save_invstd` are absent, and
/// only `out` is written.
///
/// Weight, bias and running statistics have one type: the input's, or its accumulator type.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// True to use the batch's statistics.
    pub training: bool,
    /// Weight of the batch in the running statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
    /// `[n, c, l]`, contiguous, as all operands here.
    pub x: Operand,
    /// `[c]`
    pub weight: Option<Operand>,
    /// `[c]`
    pub bias: Option<Operand>,
    /// `[c]`. Required unless training.
    pub running_mean: Option<Operand>,
    /// `[c]`. Required unless training.
    pub running_var: Option<Operand>,
    /// `[n, c, l]`
    pub out: Operand,
    /// `[c]`, accumulator type; only in training.
    pub save_mean: Option<Operand>,
    /// `[c]`, accumulator type; only in training.
    pub save_invstd: Option<Operand>,
}
kernel!(BatchNorm, "batch_norm", in_place: false, [training, momentum, eps], { x: Read, weight: Read, bias: Read, running_mean: ReadWrite, running_var: ReadWrite, out: Write, save_mean: Write, save_invstd: Write }, flops: |k| 8 * k.out.numel() as u64);
impl BatchNorm {
    /// The type of weight, bias and running statistics.
    pub fn parameter_dtype(&self) -> DType {
        let first = self.weight.or(self.bias).or(self.running_mean).or(self.running_var);
        first.map_or(self.x.dtype, |parameter| parameter.dtype)
    }

    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("x", &self.x, 3)?;
        c.contiguous("x", &self.x)?;
        c.float("x", &self.x)?;
        same(c, "out", &self.out, &self.x)?;
        let channels = self.x.dims()[1];
        let running = [("running_mean", &self.running_mean), ("running_var", &self.running_var)];
        let saved = [("save_mean", &self.save_mean), ("save_invstd", &self.save_invstd)];
        let affine = [("weight", &self.weight), ("bias", &self.bias)];
        for (name, operand) in affine.into_iter().chain(running) {
            channel_parameter(c, name, operand, &self.x, self.parameter_dtype(), channels)?;
        }
        for (name, operand) in saved {
            if let Some(operand) = operand {
                statistic(c, name, operand, &self.x, channels)?;
            }
        }
        for (name, operand) in if self.training { saved } else { running } {
            c.that(operand.is_some(), name, || "missing".into())?;
        }
        Ok(())
    }
}

/// Gradients of [`BatchNorm`]. In training, per channel with `x̂ = (x − mean)·invstd` and means over n and l:
/// `out_x = weight·invstd·(grad − mean(grad) − x̂·mean(grad·x̂))`; in evaluation `out_x = weight·invstd·grad`.
/// `out_weight = Σ grad·x̂`, `out_bias = Σ grad`. Weight, `out_weight` and `out_bias` have one type, as in [`BatchNorm`].
#[derive(Clone, Debug)]
pub struct BatchNormGrad {
    /// True if forward used the batch's statistics.
    pub training: bool,
    /// Gradient of the result, `[n, c, l]`, any strides.
    pub grad: Operand,
    /// The input, `[n, c, l]`, any strides.
    pub x: Operand,
    /// `[c]`, the mean that forward used.
    pub mean: Operand,
    /// `[c]`, the inverse standard deviation that forward used.
    pub invstd: Operand,
    /// `[c]`
    pub weight: Option<Operand>,
    /// Gradient of the input, `[n, c, l]`, contiguous.
    pub out_x: Option<Operand>,
    /// Gradient of the weight, `[c]`.
    pub out_weight: Option<Operand>,
    /// Gradient of the bias, `[c]`.
    pub out_bias: Option<Operand>,
}
kernel!(BatchNormGrad, "batch_norm_grad", in_place: false, [training], { grad: Read, x: Read, mean: Read, invstd: Read, weight: Read, out_x: Write, out_weight: Write, out_bias: Write }, flops: |k| 12 * k.x.numel() as u64);
impl BatchNormGrad {
    /// The type of the weight and of the parameters' gradients.
    pub fn parameter_dtype(&self) -> DType {
        let first = self.weight.or(self.out_weight).or(self.out_bias);
        first.map_or(self.x.dtype, |parameter| parameter.dtype)
    }

    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("x", &self.x, 3)?;
        c.float("x", &self.x)?;
        c.dtype("grad", &self.grad, self.x.dtype)?;
        c.dims("grad", &self.grad, self.x.dims())?;
        let channels = self.x.dims()[1];
        statistic(c, "mean", &self.mean, &self.x, channels)?;
        statistic(c, "invstd", &self.invstd, &self.x, channels)?;
        if let Some(out) = &self.out_x {
            same(c, "out_x", out, &self.x)?;
        }
        let parameters = [("weight", &self.weight), ("out_weight", &self.out_weight), ("out_bias", &self.out_bias)];
        for (name, operand) in parameters {
            channel_parameter(c, name, operand, &self.x, self.parameter_dtype(), channels)?;
        }
        Ok(())
    }
}

fn rows(c: &Check, name: &'static str, x: &Operand) -> Result<[usize; 2]> {
    c.rank(name, x, 2)?;
    c.contiguous(name, x)?;
    c.float(name, x)?;
    Ok([x.dims()[0], x.dims()[1]])
}

fn same(c: &Check, name: &'static str, operand: &Operand, x: &Operand) -> Result<()> {
    c.dtype(name, operand, x.dtype)?;
    c.dense(name, operand, x.dims())
}

fn parameter(c: &Check, name: &'static str, operand: &Option<Operand>, x: &Operand, n: usize) -> Result<()> {
    let Some(operand) = operand else {
        return Ok(());
    };
    c.dtype(name, operand, x.dtype)?;
    c.dense(name, operand, &[n])
}

/// Checks a parameter of batch normalisation; all parameters have the type `dtype`.
fn channel_parameter(
    c: &Check,
    name: &'static str,
    operand: &Option<Operand>,
    x: &Operand,
    dtype: DType,
    channels: usize,
) -> Result<()> {
    let Some(operand) = operand else {
        return Ok(());
    };
    let own = dtype == x.dtype || dtype == x.dtype.accumulator();
    c.that(own, name, || format!("{dtype} beside an input of {}", x.dtype))?;
    c.dtype(name, operand, dtype)?;
    c.dense(name, operand, &[channels])
}

fn statistic(c: &Check, name: &'static str, operand: &Operand, x: &Operand, n: usize) -> Result<()> {
    c.dtype(name, operand, x.dtype.accumulator())?;
    c.dense(name, operand, &[n])
}
