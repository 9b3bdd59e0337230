//! RMSprop.

use super::Implementation;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale, shift, zeros};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::Result;

/// `v = α·v + (1 − α)·g²`, `p −= lr·g/(√v + eps)`. If centred, the square of the average gradient is subtracted from
/// `v`. With momentum, the quotients are accumulated in a buffer.
pub type RmsProp = ByRule<RmsPropOptions>;

/// Settings of [`RmsProp`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsPropOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the averages.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Weight of the old momentum buffer; 0 keeps none.
    pub momentum: f64,
    /// Subtracts the square of the average gradient from the average square.
    pub centered: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for RmsPropOptions {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// The state of a parameter.
pub struct State {
    square_avg: Array,
    momentum_buffer: Option<Array>,
    grad_avg: Option<Array>,
}

impl Rule for RmsPropOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["RMSprop.step", "zero_grad:RMSprop.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let _op = context::op("zeros_like");
        let square_avg = zeros(p)?;
        let momentum_buffer = if self.momentum > 0.0 { Some(zeros(p)?) } else { None };
        let grad_avg = if self.centered { Some(zeros(p)?) } else { None };
        Ok(State { square_avg, momentum_buffer, grad_avg })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        let mut tensors = vec![("square_avg", state.square_avg.clone())];
        tensors.extend(state.momentum_buffer.clone().map(|buffer| ("momentum_buffer", buffer)));
        tensors.extend(state.grad_avg.clone().map(|average| ("grad_avg", average)));
        tensors
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let grad = gradient(row, (self.maximize, self.weight_decay), Rebound::AtOnce, locals)?;
        self.update_averages(row.state, &grad)?;
        let name = if self.centered { "" } else { "sqrt" };
        let root = locals.set("avg", context::within(name, || self.root(row.state))?);
        self.apply(row, &grad, &root)
    }

    fn update_all(&self, rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
        let grads = gradients(rows, (self.maximize, self.weight_decay), locals)?;
        rows.iter().zip(&*grads).try_for_each(|(row, grad)| self.update_averages(row.state, grad))?;
        let roots = {
            let _op = context::op(if self.centered { "_foreach_addcmul" } else { "_foreach_sqrt" });
            rows.iter().map(|row| self.root(row.state)).collect::<Result<List>>()?
        };
        let roots = locals.set("avg", roots);
        rows.iter().zip(&*grads).zip(&*roots).try_for_each(|((row, grad), root)| self.apply(row, grad, root))
    }
}

impl RmsPropOptions {
    fn update_averages(&self, s: &State, grad: &Array) -> Result<()> {
        scale(&s.square_avg, self.alpha)?;
        s.square_avg.ternary_(TernaryOp::Addcmul { value: 1.0 - self.alpha }, grad, grad)?;
        match &s.grad_avg {
            Some(average) => average.ternary_(TernaryOp::Lerp { weight: 1.0 - self.alpha }, grad, grad),
            None => Ok(()),
        }
    }

    /// `√v + eps`, or `√(v − m²) + eps`.
    fn root(&self, s: &State) -> Result<Array> {
        let v = &s.square_avg;
        let root = match &s.grad_avg {
            Some(m) => {
                let root = Array::ternary(TernaryOp::Addcmul { value: -1.0 }, v, m, m, v.dims())?;
                root.unary_(UnaryOp::Sqrt)?;
                root
            }
            None => v.unary(UnaryOp::Sqrt)?,
        };
        shift(&root, self.eps)?;
        Ok(root)
    }

    fn apply(&self, row: &Row<'_, State>, grad: &Array, root: &Array) -> Result<()> {
        match &row.state.momentum_buffer {
            Some(buffer) => {
                scale(buffer, self.momentum)?;
                buffer.ternary_(TernaryOp::Addcdiv { value: 1.0 }, grad, root)?;
                row.p.binary_(BinaryOp::Add { alpha: -self.lr }, buffer)
            }
            None => row.p.ternary_(TernaryOp::Addcdiv { value: -self.lr }, grad, root),
        }
    }
}
