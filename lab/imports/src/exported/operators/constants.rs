//! Operators of constants without dimensions: `torch.tensor(8.0)` of a program is on the host, and takes no memory of the card.

use memcore::{DType, Result};

use super::super::call::Call;
use super::super::value::{Made, Value};

/// Computes an operator whose first argument is such a constant; `None` for an operator that is not one of these, or that is of a tensor.
pub(in super::super) fn of_constants(c: &Call<'_>) -> Result<Option<Made>> {
    let target = c.node.target.as_str();
    if target == "_assert_tensor_metadata.default" {
        return Ok(c.constant("a").map(|_| {
            c.ignore_all();
            Made::Nothing
        }));
    }
    let Some(own) = c.constant("self") else { return Ok(None) };
    let pair = |function: fn(f64, f64) -> f64| {
        let other = c.constant("other")?;
        let value = function(number(&own), number(&other));
        let whole = matches!((&own, &other), (Value::Int(_), Value::Int(_)));
        Some(if whole { Value::Int(value as i64) } else { Value::Float(value) })
    };
    let alone = |function: fn(f64) -> f64| Some(Value::Float(function(number(&own))));
    let made = match target {
        "alias.default" | "clone.default" | "contiguous.default" | "detach.default" | "detach_.default" => {
            Some(own.clone())
        }
        "to.device" => Some(own.clone()),
        "_to_copy.default" | "to.dtype" | "to.dtype_layout" => Some(retyped(&own, c.dtype("dtype")?)),
        "type_as.default" | "to.other" => match c.constant("other") {
            Some(Value::Float(_)) => Some(retyped(&own, Some(DType::F32))),
            Some(_) => Some(retyped(&own, Some(DType::I64))),
            None => Some(retyped(&own, Some(c.tensor("other")?.dtype()))),
        },
        "mul.Tensor" => pair(|a, b| a * b),
        "add.Tensor" if c.float_or("alpha", 1.0)? == 1.0 => pair(|a, b| a + b),
        "sub.Tensor" if c.float_or("alpha", 1.0)? == 1.0 => pair(|a, b| a - b),
        "div.Tensor" | "true_divide.Tensor" => pair(|a, b| a / b).map(|value| Value::Float(number(&value))),
        "sqrt.default" => alone(f64::sqrt),
        "rsqrt.default" => alone(|a| a.sqrt().recip()),
        "log.default" => alone(f64::ln),
        "neg.default" => alone(|a| -a),
        _ => None,
    };
    Ok(made.map(|value| {
        c.ignore_all();
        Made::One(value)
    }))
}

/// The constant as a value of this type.
fn retyped(value: &Value, dtype: Option<DType>) -> Value {
    match dtype {
        Some(dtype) if dtype.is_float() => Value::Float(number(value)),
        Some(_) => Value::Int(number(value) as i64),
        None => value.clone(),
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Int(value) => *value as f64,
        Value::Float(value) => *value,
        _ => f64::NAN,
    }
}
