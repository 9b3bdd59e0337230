//! Activation functions: one argument, one gradient kernel each.
//!
//! relu, sigmoid and tanh save their *result*; the others save their *input*, as PyTorch's do (`tests/golden/saved_bytes.json`).

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::backend::kernel::{UnaryGradOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;

/// The value from which an activation's gradient is computed.
enum Saves {
    Input,
    /// The input, and a second result of PyTorch's operator, which is empty on a GPU. Nothing is saved before the operator has run.
    InputAndBuffer,
    Result,
}

fn activation(x: &Tensor, op: UnaryOp, gradient: ActivationBackward, saves: Saves) -> Result<Tensor> {
    let _op = context::op(gradient.op);
    let save = |role, array: &Array, saved: &mut Recorder| {
        saved.save(role, array)?;
        Ok::<Box<dyn Function>, Error>(Box::new(gradient))
    };
    if let Saves::Input = saves {
        return record_inputs(&[x], |saved| save("self", x.array(), saved), || x.array().unary(op));
    }
    let y = x.array().unary(op)?;
    record(y.clone(), &[x], |saved| match saves {
        Saves::Result => save("result", &y, saved),
        Saves::Input | Saves::InputAndBuffer => save("self", x.array(), saved),
    })
}

/// `ln(1 + eˣ)`. Saves its input.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    let _op = context::op("softplus");
    let x = full(x)?;
    let gradient = ActivationBackward::new("", "softplus_backward", "SoftplusBackward0", UnaryGradOp::Softplus);
    activation(&x, UnaryOp::Softplus, gradient, Saves::Input)
}

/// [`relu`] in the memory of its input: `nn.ReLU(inplace=True)`. Saves its result, which is that memory. Use only the returned tensor
/// afterwards, not `x`. An operator that saved `x` before fails in its backward, as in PyTorch.
///
/// # Errors
/// [`Error::Invalid`] for a leaf that requires a gradient; errors of the device.
pub fn relu_(x: &Tensor) -> Result<Tensor> {
    let gradient = ActivationBackward::new("relu_", "threshold_backward", "ReluBackward0", UnaryGradOp::Relu);
    over_input(x, UnaryOp::Relu, gradient)
}

/// [`sigmoid`] in the memory of its input, under the conditions of [`relu_`]. Saves its result, which is that memory.
pub fn sigmoid_(x: &Tensor) -> Result<Tensor> {
    let gradient = ActivationBackward::new("sigmoid_", "sigmoid_backward", "SigmoidBackward0", UnaryGradOp::Sigmoid);
    over_input(x, UnaryOp::Sigmoid, gradient)
}

/// [`tanh`] in the memory of its input, under the conditions of [`relu_`]. Saves its result, which is that memory.
pub fn tanh_(x: &Tensor) -> Result<Tensor> {
    let gradient = ActivationBackward::new("tanh_", "tanh_backward", "TanhBackward0", UnaryGradOp::Tanh);
    over_input(x, UnaryOp::Tanh, gradient)
}

/// An activation in the memory of its input, whose gradient follows from the result.
fn over_input(x: &Tensor, op: UnaryOp, gradient: ActivationBackward) -> Result<Tensor> {
    let name = gradient.op;
    let _op = context::op(name);
    x.may_change_in_place(name)?;
    x.array().unary_(op)?;
    record(x.array().clone(), &[x], |saved| {
        saved.save("result", x.array())?;
        Ok(Box::new(gradient))
    })
}

/// An activation in the memory of its input, under the conditions of [`relu_`]. Saves a copy of its input, so that it spares no memory if a
/// gradient is required.
fn in_place(x: &Tensor, op: UnaryOp, gradient: ActivationBackward) -> Result<Tensor> {
    let name = gradient.op;
    let _op = context::op(name);
    x.may_change_in_place(name)?;
    let save = |saved: &mut Recorder| {
        let before = context::within("clone", || x.array().copied())?;
        saved.save("self", &before)?;
        Ok::<Box<dyn Function>, Error>(Box::new(gradient))
    };
    record_inputs(&[x], save, || {
        x.array().unary_(op)?;
        Ok(x.array().clone())
    })
}

/// [`relu6`] in the memory of its input, under the conditions of [`relu_`]: `nn.ReLU6(inplace=True)`. Saves a copy of its input, so that it
/// spares no memory if a gradient is required.
pub fn relu6_(x: &Tensor) -> Result<Tensor> {
    hardtanh_(x, 0.0, 6.0)
}

/// [`silu`] in the memory of its input, under the conditions of [`relu_`]. Saves a copy of its input.
pub fn silu_(x: &Tensor) -> Result<Tensor> {
    let gradient = ActivationBackward::new("silu_", "silu_backward", "SiluBackward0", UnaryGradOp::Silu);
    in_place(x, UnaryOp::Silu, gradient)
}

/// [`hardswish`] in the memory of its input, under the conditions of [`relu_`]. Saves a copy of its input.
pub fn hardswish_(x: &Tensor) -> Result<Tensor> {
    let kind = UnaryGradOp::Hardswish;
    let gradient = ActivationBackward::new("hardswish_", "hardswish_backward", "HardswishBackward0", kind);
    in_place(x, UnaryOp::Hardswish, gradient)
}

/// [`hardsigmoid`] in the memory of its input, under the conditions of [`relu_`]. Saves a copy of its input.
pub fn hardsigmoid_(x: &Tensor) -> Result<Tensor> {
    let kind = UnaryGradOp::Hardsigmoid;
    let gradient = ActivationBackward::new("hardsigmoid_", "hardsigmoid_backward", "HardsigmoidBackward0", kind);
    in_place(x, UnaryOp::Hardsigmoid, gradient)
}

/// [`mish`] in the memory of its input, under the conditions of [`relu_`]. Saves a copy of its input.
pub fn mish_(x: &Tensor) -> Result<Tensor> {
    let gradient = ActivationBackward::new("mish_", "mish_backward>resize_", "MishBackward0", UnaryGradOp::Mish);
    in_place(x, UnaryOp::Mish, gradient)
}

/// [`hardtanh`] in the memory of its input, under the conditions of [`relu_`]. Saves a copy of its input.
pub fn hardtanh_(x: &Tensor, min: f64, max: f64) -> Result<Tensor> {
    let kind = UnaryGradOp::Hardtanh { min, max };
    let gradient = ActivationBackward::new("hardtanh_", "hardtanh_backward", "HardtanhBackward0", kind);
    in_place(x, UnaryOp::Clamp { min, max }, gradient)
}

/// [`leaky_relu`] in the memory of its input, under the conditions of [`relu_`]. Saves its result, which is that memory.
///
/// # Errors
/// As [`relu_`], and [`Error::Invalid`] for a slope that is not positive: then the result does not tell the sign of the input.
pub fn leaky_relu_(x: &Tensor, slope: f64) -> Result<Tensor> {
    let _op = context::op("leaky_relu_");
    x.may_change_in_place("leaky_relu_")?;
    if slope.is_nan() || slope <= 0.0 {
        return Err(Error::invalid("leaky_relu_", format!("a slope of {slope} in place")));
    }
    x.array().unary_(UnaryOp::LeakyRelu { slope })?;
    let kind = UnaryGradOp::LeakyRelu { slope };
    let gradient = ActivationBackward::new("leaky_relu_", "leaky_relu_backward", "LeakyReluBackward1", kind);
    record(x.array().clone(), &[x], |saved| {
        saved.save("result", x.array())?;
        Ok(Box::new(gradient))
    })
}

struct ActivationBackward {
    op: &'static str,
    gradient_op: &'static str,
    name: &'static str,
    gradient: UnaryGradOp,
}

impl ActivationBackward {
    fn new(op: &'static str, gradient_op: &'static str, name: &'static str, gradient: UnaryGradOp) -> Self {
        Self { op, gradient_op, name, gradient }
    }
}

impl Function for ActivationBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let value = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(self.gradient_op);
        let out = Array::unary_grad(self.gradient, &value, grad)?;
        drop(value);
        // A recomputed value is freed before the incoming gradient.
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),*): $op:expr, $path:literal, $gradient_op:literal, $node:literal, $gradient:expr, $saves:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(x: &Tensor $(, $arg: f64)*) -> Result<Tensor> {
            let gradient = ActivationBackward::new($path, $gradient_op, $node, $gradient);
            activation(x, $op, gradient, Saves::$saves)
        })*
    };
}

activations! {
    /// `max(x, 0)`. Saves its result.
    relu(): UnaryOp::Relu, "relu>clamp_min", "threshold_backward", "ReluBackward0", UnaryGradOp::Relu, Result;
    /// `x` where positive, `slope·x` elsewhere. Saves its input.
    leaky_relu(slope): UnaryOp::LeakyRelu { slope }, "leaky_relu", "leaky_relu_backward", "LeakyReluBackward0", UnaryGradOp::LeakyRelu { slope }, Input;
    /// `x·Φ(x)`, exactly (with erf). Saves its input.
    gelu(): UnaryOp::Gelu, "gelu", "gelu_backward", "GeluBackward0", UnaryGradOp::Gelu, Input;
    /// `x·Φ(x)` by the tanh approximation. Saves its input.
    gelu_tanh(): UnaryOp::GeluTanh, "gelu", "gelu_backward", "GeluBackward0", UnaryGradOp::GeluTanh, Input;
    /// `x` where positive, `alpha·(eˣ − 1)` elsewhere. Saves its input.
    elu(alpha): UnaryOp::Elu { alpha }, "elu", "elu_backward", "EluBackward0", UnaryGradOp::Elu { alpha }, Input;
    /// `ln(sigmoid(x))`. Saves its input.
    log_sigmoid(): UnaryOp::LogSigmoid, "log_sigmoid>log_sigmoid_forward", "log_sigmoid_backward", "LogSigmoidBackward0", UnaryGradOp::LogSigmoid, InputAndBuffer;
    /// `x·tanh(softplus(x))`. Saves its input.
    mish(): UnaryOp::Mish, "mish", "mish_backward>resize_", "MishBackward0", UnaryGradOp::Mish, Input;
    /// `min(max(x + 3, 0), 6)/6`. Saves its input.
    hardsigmoid(): UnaryOp::Hardsigmoid, "hardsigmoid", "hardsigmoid_backward", "HardsigmoidBackward0", UnaryGradOp::Hardsigmoid, Input;
    /// `x·min(max(x + 3, 0), 6)/6`. Saves its input.
    hardswish(): UnaryOp::Hardswish, "hardswish", "hardswish_backward", "HardswishBackward0", UnaryGradOp::Hardswish, Input;
    /// `min(max(x, min), max)`, whose gradient on the bounds is 0. Saves its input.
    hardtanh(min, max): UnaryOp::Clamp { min, max }, "hardtanh", "hardtanh_backward", "HardtanhBackward0", UnaryGradOp::Hardtanh { min, max }, Input;
    /// [`hardtanh`] between 0 and 6. Saves its input.
    relu6(): UnaryOp::Clamp { min: 0.0, max: 6.0 }, "relu6>hardtanh", "hardtanh_backward", "HardtanhBackward0", UnaryGradOp::Hardtanh { min: 0.0, max: 6.0 }, Input;
    /// `x·sigmoid(x)`. Saves its input.
    silu(): UnaryOp::Silu, "silu", "silu_backward", "SiluBackward0", UnaryGradOp::Silu, Input;
    /// `tanh x`. Saves its result.
    tanh(): UnaryOp::Tanh, "tanh", "tanh_backward", "TanhBackward0", UnaryGradOp::Tanh, Result;
    /// `1/(1 + e⁻ˣ)`. Saves its result.
    sigmoid(): UnaryOp::Sigmoid, "sigmoid", "sigmoid_backward", "SigmoidBackward0", UnaryGradOp::Sigmoid, Result;
}
