//! Gradients of functions of one element.

use memcore::backend::kernel::{UnaryGrad, UnaryGradOp};
use memcore::error::Result;

use super::{FUNCTIONS, f, typed};
use crate::job::Context;
use crate::pointwise::Pointwise;

pub(crate) fn unary_grad(cx: &mut Context<'_>, k: &UnaryGrad) -> Result<()> {
    let (op, [a, b], body) = match k.op {
        UnaryGradOp::Relu => (0, [0.0; 2], "return select(0.0, g, s > 0.0);"),
        UnaryGradOp::LeakyRelu { slope } => (1, [slope, 0.0], "return select(p.a * g, g, s > 0.0);"),
        UnaryGradOp::Gelu => (2, [0.0; 2], "return g * (normal_cdf(s) + s * normal_pdf(s));"),
        UnaryGradOp::GeluTanh => (
            3,
            [0.0; 2],
            "let t = tanh_of(gelu_inner(s)); let inner = 0.79788456080286536 * (1.0 + 0.134145 * s * s); \
             return g * (0.5 * (1.0 + t) + 0.5 * s * (1.0 - t * t) * inner);",
        ),
        UnaryGradOp::Silu => (4, [0.0; 2], "let q = sigmoid(s); return g * q * (1.0 + s * (1.0 - q));"),
        UnaryGradOp::Elu { alpha } => (7, [alpha, 0.0], "return g * select(p.a * exp(s), 1.0, s > 0.0);"),
        UnaryGradOp::Softplus => (8, [0.0; 2], "return g * sigmoid(s);"),
        UnaryGradOp::LogSigmoid => (9, [0.0; 2], "return g * sigmoid(-s);"),
        UnaryGradOp::Mish => {
            (10, [0.0; 2], "let t = tanh_of(softplus(s)); return g * (t + s * sigmoid(s) * (1.0 - t * t));")
        }
        UnaryGradOp::Hardsigmoid => (11, [0.0; 2], "return select(0.0, g / 6.0, s > -3.0 && s < 3.0);"),
        UnaryGradOp::Hardswish => {
            (12, [0.0; 2], "return select(0.0, select(g, g * (s / 3.0 + 0.5), s < 3.0), s > -3.0);")
        }
        UnaryGradOp::Hardtanh { min, max } => (13, [min, max], "return select(0.0, g, s > p.a && s < p.b);"),
        UnaryGradOp::Tanh => (5, [0.0; 2], "return g * (1.0 - s * s);"),
        UnaryGradOp::Sigmoid => (6, [0.0; 2], "return g * s * (1.0 - s);"),
    };
    let kernel = Pointwise {
        name: "unary_grad",
        op,
        operands: &[typed(&k.out), typed(&k.saved), typed(&k.grad)],
        scalars: [f(a), f(b), 0, 0, 0, 0],
        indexed: false,
    };
    kernel.run(cx, || format!("{FUNCTIONS}fn op(s: f32, g: f32) -> f32 {{ {body} }}"))
}
