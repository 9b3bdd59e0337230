//! Tensors that a graph makes: ranges, constant fills, copies of constants, noise.

use memcore::{Array, DType, Result, Tensor, context, ops};

use super::super::call::Call;
use super::super::value::{Made, Value};
use super::host;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("arange.default", arange),
    ("arange.start", arange),
    ("arange.start_step", arange),
    ("empty.memory_format", |c| empty(c, "empty", &c.sizes("size")?, None)),
    ("new_empty.default", |c| empty(c, "new_empty", &c.sizes("size")?, Some(c.tensor("self")?.dtype()))),
    ("empty_like.default", |c| {
        let x = c.tensor("self")?;
        empty(c, "empty_like", x.dims(), Some(x.dtype()))
    }),
    ("zeros.default", |c| filled(c, "zeros", &c.sizes("size")?, 0.0, None)),
    ("ones.default", |c| filled(c, "ones", &c.sizes("size")?, 1.0, None)),
    ("full.default", |c| filled(c, "full", &c.sizes("size")?, c.float("fill_value")?, number_type(c)?)),
    ("zeros_like.default", |c| like(c, "zeros_like", 0.0)),
    ("ones_like.default", |c| like(c, "ones_like", 1.0)),
    ("full_like.default", |c| like(c, "full_like", c.float("fill_value")?)),
    ("new_zeros.default", |c| new(c, "new_zeros", 0.0)),
    ("new_ones.default", |c| new(c, "new_ones", 1.0)),
    ("new_full.default", |c| new(c, "new_full", c.float("fill_value")?)),
    ("scalar_tensor.default", |c| filled(c, "scalar_tensor", &[], c.float("s")?, None)),
    ("lift_fresh_copy.default", |c| match c.scalar("self")? {
        Value::Tensor(x) => Ok(Made::tensor(ops::clone(&x.detach())?)),
        number => Ok(Made::One(number)),
    }),
    ("randn_like.default", randn_like),
];

/// Ignores device and layout arguments: every tensor is dense and on the run's device.
fn ignore_place(c: &Call<'_>) -> Result<()> {
    c.ignore(&["device", "layout", "pin_memory"]);
    c.contiguous_format("memory_format")
}

fn empty(c: &Call<'_>, op: &'static str, dims: &[usize], otherwise: Option<DType>) -> Result<Made> {
    ignore_place(c)?;
    let dtype = c.dtype("dtype")?.or(otherwise).unwrap_or(DType::F32);
    let _op = context::op(op);
    Ok(Made::tensor(Tensor::from_array(Array::empty(c.device, dims, dtype)?)))
}

fn filled(c: &Call<'_>, op: &'static str, dims: &[usize], value: f64, otherwise: Option<DType>) -> Result<Made> {
    ignore_place(c)?;
    let dtype = c.dtype("dtype")?.or(otherwise).unwrap_or(DType::F32);
    let _op = context::op(op);
    Ok(Made::tensor(Tensor::from_array(Array::full(c.device, dims, dtype, value)?)))
}

/// Returns the default type of `full`, which follows from the kind of its number.
fn number_type(c: &Call<'_>) -> Result<Option<DType>> {
    Ok(Some(match c.scalar("fill_value")? {
        Value::Int(_) => DType::I64,
        Value::Bool(_) => DType::Bool,
        _ => DType::F32,
    }))
}

fn like(c: &Call<'_>, op: &'static str, value: f64) -> Result<Made> {
    let x = c.tensor("self")?;
    filled(c, op, x.dims(), value, Some(x.dtype()))
}

fn new(c: &Call<'_>, op: &'static str, value: f64) -> Result<Made> {
    let dtype = c.tensor("self")?.dtype();
    filled(c, op, &c.sizes("size")?, value, Some(dtype))
}

fn arange(c: &Call<'_>) -> Result<Made> {
    ignore_place(c)?;
    let (start, end, step) = (c.float_or("start", 0.0)?, c.float("end")?, c.float_or("step", 1.0)?);
    let whole = ["start", "end", "step"].iter().all(|name| c.arg(name).is_none() || c.int(name).is_ok());
    let dtype = c.dtype("dtype")?.unwrap_or(if whole { DType::I64 } else { DType::F32 });
    let count = ((end - start) / step).ceil();
    if step == 0.0 || !(0.0..=1e12).contains(&count) {
        return Err(c.error(format!("from {start} to {end} by {step}")));
    }
    let values = || Ok((0..count as usize).map(|i| start + i as f64 * step).collect());
    Ok(Made::tensor(host::made(c.device, "arange", &[count as usize], dtype, values)?))
}

/// Makes standard normal noise with the sizes of a tensor.
fn randn_like(c: &Call<'_>) -> Result<Made> {
    ignore_place(c)?;
    let x = c.tensor("self")?;
    let dtype = c.dtype("dtype")?.unwrap_or(x.dtype());
    let mut uniform = host::uniform(c.device, x.numel());
    // Standard normal values by the Box–Muller transform.
    let mut normal = move || {
        let (radius, angle) = (uniform.next().unwrap_or_default(), uniform.next().unwrap_or_default());
        (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    };
    let values = || Ok((0..x.numel()).map(|_| normal()).collect());
    Ok(Made::tensor(host::made(c.device, "randn_like", x.dims(), dtype, values)?))
}
