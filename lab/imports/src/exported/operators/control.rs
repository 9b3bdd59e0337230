//! Sizes and their arithmetic, types, checks that cost nothing, and graphs inside of nodes.

use memcore::amp::Autocast;
use memcore::{DType, NoGrad, Result, Tensor, autograd, ops};

use super::super::call::Call;
use super::super::program::{Arg, dtype};
use super::super::symbols::floor_div;
use super::super::value::{Made, Value};
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("sym_size.int", sym_size),
    ("sym_numel.default", |c| Ok(Made::One(Value::Int(c.tensor("self")?.numel() as i64)))),
    ("_operator.add", |c| whole(c, |a, b| a.checked_add(b))),
    ("_operator.sub", |c| whole(c, |a, b| a.checked_sub(b))),
    ("_operator.mul", |c| whole(c, |a, b| a.checked_mul(b))),
    ("_operator.floordiv", |c| whole(c, floor_div)),
    ("_operator.mod", |c| whole(c, |a, b| a.checked_sub(b.checked_mul(floor_div(a, b)?)?))),
    ("torch.sym_min", |c| whole(c, |a, b| Some(a.min(b)))),
    ("torch.sym_max", |c| whole(c, |a, b| Some(a.max(b)))),
    ("_operator.neg", |c| Ok(Made::One(Value::Int(operand(c, 0)?.checked_neg().unwrap_or(i64::MAX))))),
    ("_operator.eq", |c| truth(c, |a, b| a == b)),
    ("_operator.ne", |c| truth(c, |a, b| a != b)),
    ("_operator.lt", |c| truth(c, |a, b| a < b)),
    ("_operator.le", |c| truth(c, |a, b| a <= b)),
    ("_operator.gt", |c| truth(c, |a, b| a > b)),
    ("_operator.ge", |c| truth(c, |a, b| a >= b)),
    ("_assert_tensor_metadata.default", nothing),
    ("_assert_scalar.default", nothing),
    ("sym_constrain_range_for_size.default", nothing),
    ("sym_constrain_range.default", nothing),
    ("to.dtype", to),
    ("to.dtype_layout", to),
    ("to.device", to),
    ("to.other", |c| like(c)),
    ("type_as.default", |c| like(c)),
    ("_to_copy.default", to),
    ("higher_order.wrap_with_set_grad_enabled", with_grad_mode),
    ("higher_order.wrap_with_autocast", with_autocast),
];

fn sym_size(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let axis = c.axis("dim", 0, x)?;
    let size = x.dims().get(axis).ok_or_else(|| c.error("a size of a scalar"))?;
    Ok(Made::One(Value::Int(*size as i64)))
}

/// Returns the integer that is the argument at this place.
fn operand(c: &Call<'_>, place: usize) -> Result<i64> {
    let (name, _) = c.node.arguments.get(place).ok_or_else(|| c.error("has too few arguments"))?;
    c.int(name)
}

fn whole(c: &Call<'_>, function: impl FnOnce(i64, i64) -> Option<i64>) -> Result<Made> {
    let (a, b) = (operand(c, 0)?, operand(c, 1)?);
    function(a, b).map(|value| Made::One(Value::Int(value))).ok_or_else(|| c.error(format!("of {a} and {b}")))
}

fn truth(c: &Call<'_>, function: impl FnOnce(i64, i64) -> bool) -> Result<Made> {
    Ok(Made::One(Value::Bool(function(operand(c, 0)?, operand(c, 1)?))))
}

/// Does nothing: the operator only checks what the file already states.
fn nothing(c: &Call<'_>) -> Result<Made> {
    c.ignore_all();
    Ok(Made::Nothing)
}

fn to(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["device", "layout", "pin_memory", "non_blocking"]);
    c.contiguous_format("memory_format")?;
    let copy = c.flag("copy", false)? || c.node.target.starts_with("_to_copy");
    let wanted = c.dtype("dtype")?;
    let own = c.tensor("self")?.dtype();
    if own.is_complex() && wanted.is_some_and(|wanted| wanted != own) {
        return Err(c.error("to another type than that of its complex numbers is not supported"));
    }
    of_one(c, |x| converted(x, wanted.unwrap_or(x.dtype()), copy))
}

fn like(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["non_blocking"]);
    let copy = c.flag("copy", false)?;
    let other = c.tensor("other")?.dtype();
    of_one(c, |x| converted(x, other, copy))
}

fn converted(x: &Tensor, dtype: DType, copy: bool) -> Result<Tensor> {
    if copy && x.dtype() == dtype { ops::clone(x) } else { ops::cast(x, dtype) }
}

/// Runs the graph at argument `place`, on the arguments after it.
fn inside(c: &Call<'_>, place: usize) -> Result<Made> {
    let Some((_, Arg::Graph(program))) = c.node.arguments.get(place) else {
        return Err(c.error("has no graph"));
    };
    let mut values = Vec::new();
    for (_, argument) in &c.node.arguments[place + 1..] {
        values.push(match argument {
            Arg::Value(slot) => c.values.get(*slot).cloned().unwrap_or(Value::None),
            Arg::Int(value) => Value::Int(*value),
            Arg::Float(value) => Value::Float(*value),
            Arg::Bool(value) => Value::Bool(*value),
            _ => return Err(c.error("an argument of its graph is of a kind that is not supported")),
        });
    }
    Ok(Made::Many((c.inner)(program, values)?))
}

fn with_grad_mode(c: &Call<'_>) -> Result<Made> {
    c.ignore_all();
    match c.node.arguments.first() {
        Some((_, Arg::Bool(false))) => {
            let _no_grad = NoGrad::new();
            inside(c, 1)
        }
        Some((_, Arg::Bool(true))) if autograd::is_grad_enabled() => inside(c, 1),
        _ => Err(c.error("gradients that are switched on inside of torch.no_grad() are not supported")),
    }
}

/// Runs a graph under autocast. Arguments are the device, the type, whether autocast is on, whether casts are cached, the graph, and its inputs.
fn with_autocast(c: &Call<'_>) -> Result<Made> {
    c.ignore_all();
    let enabled = match c.node.arguments.get(2) {
        Some((_, Arg::Bool(enabled))) => *enabled,
        _ => return Err(c.error("does not say whether it is on")),
    };
    if !enabled {
        let _off = Autocast::off();
        return inside(c, 4);
    }
    let Some((_, Arg::Type(code))) = c.node.arguments.get(1) else {
        return Err(c.error("names no type"));
    };
    match dtype(*code) {
        Some(dtype) if dtype.is_half() => {
            let _autocast = Autocast::new(dtype);
            inside(c, 4)
        }
        _ => Err(c.error("to a type other than float16 and bfloat16")),
    }
}
