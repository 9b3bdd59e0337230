//! Powers of tensors by tensors. Gradients are computed on the host.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::BinaryOp;
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::loss::regression::check_same;
use crate::ops::on_host;

/// `xʸ` of two tensors of the same sizes and type. Saves both and the result.
///
/// # Errors
/// [`Error::Shape`] if the sizes differ, [`Error::Invalid`] if the types do; errors of the device.
pub fn pow_tensors(x: &Tensor, exponent: &Tensor) -> Result<Tensor> {
    check_same("pow", x, exponent)?;
    let _op = context::op("pow");
    let (exponent, x) = (&full(exponent)?, &full(x)?);
    if x.dtype() != exponent.dtype() || !x.dtype().is_float() {
        return Err(Error::invalid("pow", format!("of {} by {}", x.dtype(), exponent.dtype())));
    }
    let y = x.array().binary(BinaryOp::Pow, exponent.array())?;
    record(y.clone(), &[x, exponent], |saved| {
        saved.save("exponent", exponent.array())?;
        saved.save("result", &y)?;
        saved.save("self", x.array())?;
        Ok(Box::new(PowBackward))
    })
}

struct PowBackward;

impl Function for PowBackward {
    fn name(&self) -> &'static str {
        "PowBackward1"
    }

    /// The exponent's gradient is made first: `grad·y·ln x`, 0 where `x` is 0 and the exponent is not negative. Then that of `x`:
    /// `grad·exponent·x^(exponent−1)`, 0 where the exponent is 0.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (exponent, y, x) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        let made = |op, dtype| context::within(op, || Array::empty(x.device(), x.dims(), dtype));
        let zero = || context::within("scalar_tensor", || Array::zeros(x.device(), &[], x.dtype()));
        let torch = x.device().profile().torch_temporaries;
        if needs.input(1) {
            let temporaries = if torch { Some(exponent_temporaries(&made, &zero, x.dtype())?) } else { None };
            let slope = made("mul", x.dtype())?;
            drop(temporaries);
            on_host::fill(&slope, &[grad, &x, &exponent, &y], |values| {
                let of = |i: usize| {
                    let [grad, x, exponent, y] = [0, 1, 2, 3].map(|k: usize| values[k][i]);
                    if x == 0.0 && exponent >= 0.0 { 0.0 } else { grad * y * x.ln() }
                };
                Ok((0..values[0].len()).map(of).collect())
            })?;
            out[1] = Some(slope);
        }
        if needs.input(0) {
            let mut products = Vec::new();
            for op in ["sub", "pow", "mul", "mul"].into_iter().filter(|_| torch) {
                products.push(made(op, x.dtype())?);
            }
            let condition = if torch { Some((zero()?, made("eq", DType::Bool)?)) } else { None };
            let slope = made("where>resize_", x.dtype())?;
            if let Some((zero, is_zero)) = condition {
                drop(is_zero);
                drop(zero);
            }
            while products.pop().is_some() {}
            on_host::fill(&slope, &[grad, &x, &exponent], |values| {
                let of = |i: usize| {
                    let [grad, x, exponent] = [0, 1, 2].map(|k: usize| values[k][i]);
                    if exponent == 0.0 { 0.0 } else { grad * exponent * x.powf(exponent - 1.0) }
                };
                Ok((0..values[0].len()).map(of).collect())
            })?;
            out[0] = Some(slope);
        }
        saved.done();
        Ok(out)
    }
}

type Make<'a> = dyn Fn(&'static str, DType) -> Result<Array> + 'a;

/// Allocates what PyTorch makes for the exponent's gradient before its last product, in the order in which it is freed.
fn exponent_temporaries(made: &Make<'_>, zero: &dyn Fn() -> Result<Array>, dtype: DType) -> Result<[Array; 5]> {
    let (not_negative, is_zero) = (made("ge", DType::Bool)?, made("eq", DType::Bool)?);
    let condition = made("logical_and>resize_", DType::Bool)?;
    drop(is_zero);
    drop(not_negative);
    let (logarithm, product) = (made("log", dtype)?, made("mul", dtype)?);
    let zero = zero()?;
    let chosen = made("where>resize_", dtype)?;
    Ok([chosen, zero, product, logarithm, condition])
}
