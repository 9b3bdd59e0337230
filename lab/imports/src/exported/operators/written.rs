//! What a graph writes into tensors that have no gradient: counters, masks, noise.

use memcore::backend::kernel::{BinaryOp, UnaryOp};
use memcore::{Result, Tensor, autograd, context};

use super::super::call::Call;
use super::super::value::{Made, Value};
use super::host;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("fill_.Scalar", |c| written(c, |x| x.array().fill_(c.float("value")?))),
    ("zero_.default", |c| written(c, |x| x.array().fill_(0.0))),
    ("copy_.default", |c| {
        c.ignore(&["non_blocking"]);
        written(c, |x| x.array().copy_(&c.tensor("src")?.array().broadcast_to(x.dims())?))
    }),
    ("mul_.Tensor", |c| scaled(c, BinaryOp::Mul, |value| value)),
    ("div_.Tensor", |c| scaled(c, BinaryOp::Div, |value| 1.0 / value)),
    ("bernoulli_.float", bernoulli_),
];

/// Writes into `self`, which must not be part of a history.
fn written(c: &Call<'_>, write: impl FnOnce(&Tensor) -> Result<()>) -> Result<Made> {
    let x = c.tensor("self")?;
    if x.requires_grad() && autograd::is_grad_enabled() {
        return Err(c.error("into a tensor with a gradient is not represented"));
    }
    write(x)?;
    Ok(Made::tensor(x.clone()))
}

/// Times a number, or what the number comes to; with a tensor by the kernel.
fn scaled(c: &Call<'_>, kernel: BinaryOp, factor: impl FnOnce(f64) -> f64) -> Result<Made> {
    written(c, |x| match c.scalar("other")? {
        Value::Tensor(other) => x.array().binary_(kernel, other.array()),
        _ => x.array().unary_(UnaryOp::Affine { mul: factor(c.float("other")?), add: 0.0 }),
    })
}

/// Ones with a probability, zeros otherwise.
fn bernoulli_(c: &Call<'_>) -> Result<Made> {
    let p = c.float_or("p", 0.5)?;
    written(c, |x| {
        let _op = context::op("bernoulli_");
        let uniform = host::uniform(c.device, x.numel());
        if !c.device.computes() {
            return Ok(());
        }
        let values: Vec<f64> = uniform.map(|value| f64::from(u8::from(value < p))).collect();
        host::write(x.array(), &values)
    })
}
