//! Operators that write in place: into counters, masks and noise, and into results with a history of autograd.

use memcore::{Result, Tensor, autograd, context, ops};

use super::super::call::Call;
use super::super::value::{Made, Value};
use super::host;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("fill_.Scalar", |c| written(c, |x| x.array().fill_(c.float("value")?))),
    ("fill_.Tensor", |c| {
        written(c, |x| match c.scalar("value")? {
            Value::Tensor(value) => x.array().copy_(&value.array().broadcast_to(x.dims())?),
            _ => x.array().fill_(c.float("value")?),
        })
    }),
    ("zero_.default", |c| written(c, |x| x.array().fill_(0.0))),
    ("copy_.default", |c| {
        c.ignore(&["non_blocking"]);
        Ok(Made::tensor(ops::copy_(c.tensor("self")?, c.tensor("src")?)?))
    }),
    ("mul_.Tensor", |c| scaled(c, ops::mul_, |value| value)),
    ("mul_.Scalar", |c| scaled(c, ops::mul_, |value| value)),
    ("div_.Tensor", |c| scaled(c, ops::div_, |value| 1.0 / value)),
    ("div_.Scalar", |c| scaled(c, ops::div_, |value| 1.0 / value)),
    ("masked_fill_.Scalar", |c| {
        let (mask, value) = (c.tensor("mask")?, c.float("value")?);
        Ok(Made::tensor(ops::masked_fill_(c.tensor("self")?, mask, value)?))
    }),
    ("bernoulli_.float", bernoulli_),
];

/// Writes into `self`, which must not require a gradient.
fn written(c: &Call<'_>, write: impl FnOnce(&Tensor) -> Result<()>) -> Result<Made> {
    let x = c.tensor("self")?;
    if x.requires_grad() && autograd::is_grad_enabled() {
        return Err(c.error("into a tensor with a gradient is not represented"));
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
