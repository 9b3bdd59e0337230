//! Tensors that a graph makes: ranges, constant fills, unit matrices, triangles' places, copies of constants, noise.

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
    ("randn_like.default", |c| {
        let x = c.tensor("self")?;
        noise(c, "randn_like", x.dims(), x.dtype(), host::normal(c.device, x.numel()))
    }),
    ("rand_like.default", |c| {
        let x = c.tensor("self")?;
        noise(c, "rand_like", x.dims(), x.dtype(), host::uniform(c.device, x.numel()))
    }),
    ("randn.default", |c| {
        let dims = c.sizes("size")?;
        noise(c, "randn", &dims, DType::F32, host::normal(c.device, dims.iter().product()))
    }),
    ("rand.default", |c| {
        let dims = c.sizes("size")?;
        noise(c, "rand", &dims, DType::F32, host::uniform(c.device, dims.iter().product()))
    }),
    ("bernoulli.default", |c| {
        let p = c.tensor("self")?;
        let values = host::uniform(c.device, p.numel());
        let one = |(value, p): (f64, f64)| f64::from(u8::from(value < p));
        let drawn = || Ok(values.zip(p.array().host_values()?).map(one).collect());
        Ok(Made::tensor(host::made(c.device, "bernoulli", p.dims(), p.dtype(), drawn)?))
    }),
    ("randint.default", |c| whole_noise(c, 0)),
    ("randint.low", |c| whole_noise(c, c.int("low")?)),
    ("eye.default", |c| eye(c, c.int("n")?)),
    ("normal.float_float", |c| {
        let (mean, std, dims) = (c.float("mean")?, c.float("std")?, c.sizes("size")?);
        let values = host::normal(c.device, dims.iter().product()).map(move |v| mean + v * std);
        noise(c, "normal", &dims, DType::F32, values)
    }),
    ("eye.m", |c| eye(c, c.int("m")?)),
    ("linspace.default", linspace),
    ("tril_indices.default", |c| triangle(c, "tril_indices", |row, column, offset| column <= row + offset)),
    ("triu_indices.default", |c| triangle(c, "triu_indices", |row, column, offset| column >= row + offset)),
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
    let of_graph = c.dtype("dtype")?.or(otherwise).unwrap_or(DType::F32);
    let dtype = c.type_in_program().unwrap_or(of_graph);
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

/// Makes noise of these values.
fn noise(
    c: &Call<'_>,
    op: &'static str,
    dims: &[usize],
    dtype: DType,
    values: impl Iterator<Item = f64>,
) -> Result<Made> {
    ignore_place(c)?;
    let dtype = c.dtype("dtype")?.unwrap_or(dtype);
    let count = dims.iter().product();
    Ok(Made::tensor(host::made(c.device, op, dims, dtype, || Ok(values.take(count).collect()))?))
}

/// Whole numbers from `low` to the one below the argument `high`.
fn whole_noise(c: &Call<'_>, low: i64) -> Result<Made> {
    let (dims, high) = (c.sizes("size")?, c.int("high")?);
    if high <= low {
        return Err(c.error(format!("from {low} to {high}")));
    }
    let uniform = host::uniform(c.device, dims.iter().product());
    let values = uniform.map(move |value| (low as f64 + value * (high - low) as f64).floor());
    noise(c, "randint", &dims, DType::I64, values)
}

/// The unit matrix of the argument `n` rows and this many columns.
fn eye(c: &Call<'_>, columns: i64) -> Result<Made> {
    ignore_place(c)?;
    let size = |n: i64| usize::try_from(n).map_err(|_| c.error("a negative size"));
    let (rows, columns) = (size(c.int("n")?)?, size(columns)?);
    let values = || Ok((0..rows * columns).map(|i| f64::from(u8::from(i / columns == i % columns))).collect());
    let dtype = c.dtype("dtype")?.unwrap_or(DType::F32);
    Ok(Made::tensor(host::made(c.device, "eye", &[rows, columns], dtype, values)?))
}

/// Evenly spaced numbers, both ends among them.
fn linspace(c: &Call<'_>) -> Result<Made> {
    ignore_place(c)?;
    let (start, end) = (c.float("start")?, c.float("end")?);
    let count = usize::try_from(c.int("steps")?).map_err(|_| c.error("a negative number of steps"))?;
    let step = (end - start) / count.saturating_sub(1).max(1) as f64;
    let values = || Ok((0..count).map(|i| start + i as f64 * step).collect());
    let dtype = c.dtype("dtype")?.unwrap_or(DType::F32);
    Ok(Made::tensor(host::made(c.device, "linspace", &[count], dtype, values)?))
}

/// The places of a triangle of a matrix, row by row: a row of row numbers, and one of column numbers.
fn triangle(c: &Call<'_>, op: &'static str, holds: fn(i64, i64, i64) -> bool) -> Result<Made> {
    ignore_place(c)?;
    let (rows, columns, offset) = (c.int("row")?, c.int("col")?, c.int_or("offset", 0)?);
    if !(0..=1 << 20).contains(&rows) || !(0..=1 << 20).contains(&columns) {
        return Err(c.error(format!("of a matrix {rows} × {columns}")));
    }
    let within = move |row: i64| (0..columns).filter(move |column| holds(row, *column, offset));
    let count = (0..rows).map(|row| within(row).count()).sum::<usize>();
    let values = || {
        let of_rows = (0..rows).flat_map(|row| within(row).map(move |_| row as f64));
        let of_columns = (0..rows).flat_map(|row| within(row).map(|column| column as f64));
        Ok(of_rows.chain(of_columns).collect())
    };
    let dtype = c.dtype("dtype")?.unwrap_or(DType::I64);
    Ok(Made::tensor(host::made(c.device, op, &[2, count], dtype, values)?))
}
