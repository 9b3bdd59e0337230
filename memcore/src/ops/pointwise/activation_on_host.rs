//! Activations without a kernel of their own, and one with a learned slope. Each saves its input. Values are computed on the host.

use std::sync::Arc;

use smallvec::smallvec;

use super::binary::{Like, unbroadcast};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::on_host;

/// `scale·x` where positive, `scale·alpha·(e^(input_scale·x) − 1)` elsewhere. SELU and CELU are cases of it.
///
/// # Errors
/// Errors of the device.
pub fn elu_scaled(x: &Tensor, op: &'static str, alpha: f64, scale: f64, input_scale: f64) -> Result<Tensor> {
    let value = move |x: f64| if x > 0.0 { scale * x } else { scale * alpha * (input_scale * x).exp_m1() };
    let slope = move |x: f64| if x > 0.0 { scale } else { scale * alpha * input_scale * (input_scale * x).exp() };
    let node = if op == "celu" { "CeluBackward0" } else { "EluBackward0" };
    let forward = if op == "selu" {
        "selu>elu"
    } else if op == "celu" {
        "celu>elu"
    } else {
        "elu"
    };
    of_one(x, [forward, "elu_backward", node], value, slope)
}

/// [`elu_scaled`] in the memory of its input. Saves its result, which is that memory.
///
/// # Errors
/// [`Error::Invalid`] for a leaf that requires a gradient, or factors whose result does not tell the sign of the input; errors of the device.
pub fn elu_scaled_(x: &Tensor, op: &'static str, alpha: f64, scale: f64, input_scale: f64) -> Result<Tensor> {
    x.may_change_in_place(op)?;
    let tells_sign = alpha * scale > 0.0 && scale > 0.0 && input_scale > 0.0;
    if !x.dtype().is_float() || !tells_sign {
        return Err(Error::invalid(op, format!("of {} with factors {alpha}, {scale}, {input_scale}", x.dtype())));
    }
    let _op = context::op(op);
    on_host::fill(x.array(), &[x.array()], |values| {
        let of = |&x: &f64| if x > 0.0 { scale * x } else { scale * alpha * (input_scale * x).exp_m1() };
        Ok(values[0].iter().map(of).collect())
    })?;
    let slope = move |y: f64| if y > 0.0 { scale } else { input_scale * (y + alpha * scale) };
    let node = if op == "celu_" { "CeluBackward1" } else { "EluBackward1" };
    record(x.array().clone(), &[x], |saved| {
        saved.save("result", x.array())?;
        Ok(Box::new(OfOneBackward { op: "elu_backward", node, slope: Arc::new(slope) }))
    })
}

/// `ln(1 + e^(beta·x))/beta`, and `x` itself where `beta·x` is above `threshold`.
///
/// # Errors
/// Errors of the device.
pub fn softplus_scaled(x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    let value = move |x: f64| if beta * x > threshold { x } else { (beta * x).exp().ln_1p() / beta };
    let slope = move |x: f64| if beta * x > threshold { 1.0 } else { 1.0 / (1.0 + (-beta * x).exp()) };
    of_one(x, ["softplus", "softplus_backward", "SoftplusBackward0"], value, slope)
}

type Curve = dyn Fn(f64) -> f64 + Send + Sync;

/// Applies a function to each element, and records its derivative. The names are those of the operator, of its gradient and of its node.
fn of_one(
    x: &Tensor,
    [op, gradient_op, node]: [&'static str; 3],
    value: impl Fn(f64) -> f64,
    slope: impl Fn(f64) -> f64 + Send + Sync + 'static,
) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return Err(Error::invalid(op, format!("not defined for {}", x.dtype())));
    }
    let slope: Arc<Curve> = Arc::new(slope);
    let describe = |saved: &mut Recorder| {
        saved.save("self", x.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(OfOneBackward { op: gradient_op, node, slope }))
    };
    record_inputs(&[x], describe, || {
        let _op = context::op(op);
        let y = Array::empty_for(x.device(), x.dims(), &[x.array().layout()], x.dtype())?;
        on_host::fill(&y, &[x.array()], |values| Ok(values[0].iter().map(|&x| value(x)).collect()))?;
        Ok(y)
    })
}

struct OfOneBackward {
    op: &'static str,
    node: &'static str,
    slope: Arc<Curve>,
}

impl Function for OfOneBackward {
    fn name(&self) -> &'static str {
        self.node
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let x = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(self.op);
        let out = Array::empty_for(x.device(), x.dims(), &[grad.layout(), x.layout()], x.dtype())?;
        on_host::fill(&out, &[&x, grad], |values| {
            Ok(values[0].iter().zip(&values[1]).map(|(&x, grad)| grad * (self.slope)(x)).collect())
        })?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// `x` where positive, `slope·x` elsewhere. There is one slope for all, `[1]`, or one for each channel (the second dimension), `[c]`. Saves
/// both.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn prelu(x: &Tensor, slope: &Tensor) -> Result<Tensor> {
    let channels = x.dims().get(1).copied().unwrap_or(1);
    let n = slope.numel();
    if slope.rank() != 1 || !(n == 1 || n == channels) {
        return Err(Error::shape("prelu", format!("{:?} with slopes {:?}", x.dims(), slope.dims())));
    }
    let mut dims = vec![1; x.rank()];
    if let Some(channel) = dims.get_mut(1) {
        *channel = n;
    }
    let slope = crate::ops::shape::view::view(slope, &dims)?;
    let describe = |saved: &mut Recorder| {
        saved.save("self", x.array())?;
        saved.save("weight", slope.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(PreluBackward {
            operands: [Like::from_tensor(x), Like::from_tensor(&slope)],
        }))
    };
    record_inputs(&[x, &slope], describe, || {
        let _op = context::op("prelu>_prelu_kernel>empty_like");
        let y = Array::empty_for(x.device(), x.dims(), &[x.array().layout()], x.dtype())?;
        let wide = slope.array().broadcast_to(x.dims())?;
        on_host::fill(&y, &[x.array(), &wide], |values| {
            let of = |(&x, &slope): (&f64, &f64)| if x > 0.0 { x } else { slope * x };
            Ok(values[0].iter().zip(&values[1]).map(of).collect())
        })?;
        Ok(y)
    })
}

struct PreluBackward {
    operands: [Like; 2],
}

impl Function for PreluBackward {
    fn name(&self) -> &'static str {
        "PreluKernelBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, slope) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        {
            let _op = context::op("_prelu_kernel_backward>resize_");
            let wide = slope.broadcast_to(x.dims())?;
            let like = || Array::empty_for(x.device(), x.dims(), &[x.layout()], x.dtype());
            let (of_x, of_slope) = (like()?, like()?);
            on_host::fill(&of_x, &[&x, grad, &wide], |values| {
                let of = |i: usize| values[1][i] * if values[0][i] > 0.0 { 1.0 } else { values[2][i] };
                Ok((0..values[0].len()).map(of).collect())
            })?;
            on_host::fill(&of_slope, &[&x, grad], |values| {
                let of = |(&x, &grad): (&f64, &f64)| if x > 0.0 { 0.0 } else { x * grad };
                Ok(values[0].iter().zip(&values[1]).map(of).collect())
            })?;
            (out[0], out[1]) = (Some(of_x), Some(of_slope));
        }
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}

/// The first half of the elements along `axis`, times the sigmoid of the second half. Saves its input.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist or has an odd size; errors of the device.
pub fn glu(x: &Tensor, axis: usize) -> Result<Tensor> {
    if x.dims().get(axis).is_none_or(|size| size % 2 == 1) {
        return Err(Error::shape("glu", format!("axis {axis} of {:?}", x.dims())));
    }
    let mut dims: Vec<usize> = x.dims().into();
    dims[axis] /= 2;
    let inner: usize = dims[axis..].iter().product();
    let describe = |saved: &mut Recorder| {
        saved.save("self", x.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(GluBackward { inner }))
    };
    record_inputs(&[x], describe, || {
        let y = context::within("glu", || Array::empty(x.device(), &dims, x.dtype()))?;
        on_host::fill(&y, &[x.array()], |values| {
            let of = |i: usize| {
                let [value, gate] = halves(i, inner).map(|at| values[0][at]);
                value / (1.0 + (-gate).exp())
            };
            Ok((0..y.numel()).map(of).collect())
        })?;
        Ok(y)
    })
}

/// Returns the places of a result's value and of its gate.
fn halves(i: usize, inner: usize) -> [usize; 2] {
    let first = i / inner * 2 * inner + i % inner;
    [first, first + inner]
}

struct GluBackward {
    /// Elements of a half, from one place before the axis to the next.
    inner: usize,
}

impl Function for GluBackward {
    fn name(&self) -> &'static str {
        "GluBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let x = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let out = context::within("glu_backward>resize_", || Array::empty(x.device(), x.dims(), x.dtype()))?;
        on_host::fill(&out, &[&x, grad], |values| {
            let mut slopes = vec![0.0; values[0].len()];
            for (i, grad) in values[1].iter().enumerate() {
                let [value, gate] = halves(i, self.inner);
                let open = 1.0 / (1.0 + (-values[0][gate]).exp());
                slopes[value] = grad * open;
                slopes[gate] = grad * values[0][value] * open * (1.0 - open);
            }
            Ok(slopes)
        })?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
