//! Operators that write in place: into counters, masks and noise, and into results with a history of autograd.

use memcore::{Result, Tensor, autograd, context, ops};

use super::super::call::Call;
use super::super::value::{Made, Value};
use super::host;
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("fill_.Scalar", |c| of_one(c, |x| ops::fill_(x, c.float("value")?))),
    ("fill_.Tensor", |c| {
        written(c, |x| match c.scalar("value")? {
            Value::Tensor(value) => x.array().copy_(&value.array().broadcast_to(x.dims())?),
            _ => x.array().fill_(c.float("value")?),
        })
    }),
    ("zero_.default", |c| of_one(c, |x| ops::fill_(x, 0.0))),
    ("copy_.default", |c| {
        c.ignore(&["non_blocking"]);
        Ok(Made::tensor(ops::copy_(c.tensor("self")?, c.tensor("src")?)?))
    }),
    ("mul_.Tensor", |c| scaled(c, ops::mul_, |value| value)),
    ("mul_.Scalar", |c| scaled(c, ops::mul_, |value| value)),
    ("div_.Tensor", |c| scaled(c, ops::div_, |value| 1.0 / value)),
    ("div_.Scalar", |c| scaled(c, ops::div_, |value| 1.0 / value)),
    ("sub_.Tensor", |c| {
        if c.float_or("alpha", 1.0)? != 1.0 {
            return Err(c.error("a factor (alpha) is not supported"));
        }
        Ok(Made::tensor(match c.scalar("other")? {
            Value::Tensor(other) => ops::sub_(c.tensor("self")?, &other)?,
            _ => ops::affine_(c.tensor("self")?, 1.0, -c.float("other")?)?,
        }))
    }),
    ("clamp_.default", |c| clamped(c, "min", "max")),
    ("clamp_min_.default", |c| clamped(c, "min", "")),
    ("clamp_max_.default", |c| clamped(c, "", "max")),
    ("sigmoid_.default", |c| of_one(c, ops::sigmoid_)),
    ("tanh_.default", |c| of_one(c, ops::tanh_)),
    ("exp_.default", |c| of_one(c, ops::exp_)),
    ("neg_.default", |c| of_one(c, |x| ops::affine_(x, -1.0, 0.0))),
    ("exponential_.default", exponential_),
    ("uniform_.default", |c| {
        let (from, to) = (c.float_or("from", 0.0)?, c.float_or("to", 1.0)?);
        drawn(c, "uniform_", host::uniform(c.device, c.tensor("self")?.numel()).map(move |v| from + v * (to - from)))
    }),
    ("normal_.default", |c| {
        let (mean, std) = (c.float_or("mean", 0.0)?, c.float_or("std", 1.0)?);
        drawn(c, "normal_", host::normal(c.device, c.tensor("self")?.numel()).map(move |v| mean + v * std))
    }),
    ("detach_.default", |c| of_one(c, |x| Ok(x.detach()))),
    ("div.out", |c| {
        let (x, other, out) = (c.tensor("self")?, c.tensor("other")?, c.tensor("out")?);
        if autograd::is_grad_enabled() && [x, other, out].iter().any(|tensor| tensor.requires_grad()) {
            return Err(c.error("with a gradient is not defined, in PyTorch neither"));
        }
        let _op = context::op("div");
        out.array().copy_(&x.array().broadcast_to(out.dims())?)?;
        Ok(Made::tensor(ops::div_(out, &other.detach())?))
    }),
    ("masked_fill_.Scalar", |c| {
        let (mask, value) = (c.tensor("mask")?, c.float("value")?);
        Ok(Made::tensor(ops::masked_fill_(c.tensor("self")?, mask, value)?))
    }),
    ("bernoulli_.float", bernoulli_),
    ("scatter_.value", scatter_),
];

/// Writes into `self`, which must not require a gradient.
fn written(c: &Call<'_>, write: impl FnOnce(&Tensor) -> Result<()>) -> Result<Made> {
    let x = c.tensor("self")?;
    if x.requires_grad() && autograd::is_grad_enabled() {
        return Err(c.error("into a tensor with a gradient is not supported"));
    }
    write(x)?;
    Ok(Made::tensor(x.clone()))
}

type InPlace = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Scales in place: by `factor` of a number, or with the operator `of_tensors` by a tensor.
fn scaled(c: &Call<'_>, of_tensors: InPlace, factor: impl FnOnce(f64) -> f64) -> Result<Made> {
    let x = c.tensor("self")?;
    Ok(Made::tensor(match c.scalar("other")? {
        Value::Tensor(other) => of_tensors(x, &other)?,
        _ => ops::affine_(x, factor(c.float("other")?), 0.0)?,
    }))
}

/// Writes a number to the places of indices along an axis.
fn scatter_(c: &Call<'_>) -> Result<Made> {
    let (index, value) = (c.tensor("index")?, c.float("value")?);
    let axis = c.axis("dim", 0, c.tensor("self")?)?;
    written(c, |x| {
        if !c.device.computes() {
            return Ok(());
        }
        // Their own operator computes it, outside of the memory of `self`.
        let _op = context::op("scatter_");
        x.array().copy_(ops::scatter_value(&x.detach(), axis, index, value)?.array())
    })
}

/// Bounds in place by the arguments of these names; an empty name bounds nothing.
fn clamped(c: &Call<'_>, min: &str, max: &str) -> Result<Made> {
    let bound = |name: &str, none: f64| if name.is_empty() { Ok(none) } else { c.float_or(name, none) };
    let (min, max) = (bound(min, f64::NEG_INFINITY)?, bound(max, f64::INFINITY)?);
    of_one(c, |x| ops::clamp_(x, min, max))
}

/// Fills with values of the exponential distribution.
fn exponential_(c: &Call<'_>) -> Result<Made> {
    let rate = c.float_or("lambd", 1.0)?;
    let uniform = host::uniform(c.device, c.tensor("self")?.numel());
    drawn(c, "exponential_", uniform.map(|value| -(1.0 - value).ln() / rate))
}

/// Fills with noise.
fn drawn(c: &Call<'_>, op: &'static str, values: impl Iterator<Item = f64>) -> Result<Made> {
    written(c, |x| {
        let _op = context::op(op);
        if !c.device.computes() {
            return Ok(());
        }
        x.array().write_values(&values.take(x.numel()).collect::<Vec<f64>>())
    })
}

/// Fills with ones with the probability `p`, and zeros otherwise.
fn bernoulli_(c: &Call<'_>) -> Result<Made> {
    let p = c.float_or("p", 0.5)?;
    written(c, |x| {
        let _op = context::op("bernoulli_");
        let uniform = host::uniform(c.device, x.numel());
        if !c.device.computes() {
            return Ok(());
        }
        let values: Vec<f64> = uniform.map(|value| f64::from(u8::from(value < p))).collect();
        x.array().write_values(&values)
    })
}
