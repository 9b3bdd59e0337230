//! Resilient backpropagation.

use super::Implementation;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, scale};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;

/// Where the gradient keeps its sign, the step size grows; where it changes its sign, the step size shrinks and the gradient
/// counts as 0. `p −= sign(g)·step_size`. The step sizes begin as the learning rate.
pub type Rprop = ByRule<RpropOptions>;

/// Settings of [`Rprop`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RpropOptions {
    /// Learning rate.
    pub lr: f64,
    /// Factors of the step size: where the gradient changes its sign, and where it keeps it.
    pub etas: [f64; 2],
    /// The smallest and the largest step size.
    pub step_sizes: [f64; 2],
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for RpropOptions {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            etas: [0.5, 1.2],
            step_sizes: [1e-6, 50.0],
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// The state of a parameter.
pub struct State {
    prev: Array,
    step_size: Array,
}

impl Rule for RpropOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["Rprop.step", "zero_grad:Rprop.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let prev = context::within("zeros_like", || p.zeros_like())?;
        let step_size = context::within("full_like", || Array::full(p.device(), p.dims(), p.dtype(), self.lr))?;
        let kept = |array: Array| array.with_category(Category::OptimizerState);
        Ok(State { prev: kept(prev), step_size: kept(step_size) })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        vec![("prev", state.prev.clone()), ("step_size", state.step_size.clone())]
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let grad = gradient(row, (self.maximize, 0.0), Rebound::AtOnce, locals)?;
        let product = context::within("mul", || grad.mul(&row.state.prev))?;
        let sign = context::within("sign", || product.unary(UnaryOp::Sign))?;
        drop(product);
        let sign = locals.set("sign", sign);
        self.factors(&sign)?;
        self.resize(row.state, &sign)?;
        let copy = context::within("clone", || grad.copied())?;
        drop(grad);
        let grad = locals.set("grad", copy);
        mask("eq", &sign)?;
        self.keeps(&sign)?;
        grad.binary_(BinaryOp::Mul, &sign)?;
        let direction = context::within("sign", || grad.unary(UnaryOp::Sign))?;
        row.p.ternary_(TernaryOp::Addcmul { value: -1.0 }, &direction, &row.state.step_size)?;
        drop(direction);
        row.state.prev.copy_(&grad)
    }

    fn update_all(&self, rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
        let signs = {
            let _op = context::op("_foreach_mul");
            rows.iter().map(|row| row.grad.mul(&row.state.prev)).collect::<Result<List>>()?
        };
        let turn = if self.maximize { -1.0 } else { 1.0 };
        for (row, sign) in rows.iter().zip(&*signs) {
            scale(sign, turn)?;
            row.state.prev.copy_(&row.grad)?;
            scale(&row.state.prev, turn)?;
            sign.unary_(UnaryOp::Sign)?;
        }
        signs.iter().try_for_each(|sign| self.factors(sign))?;
        // The loop's variable keeps the last of them.
        locals.set("sign", signs.last().cloned().into_iter().collect());
        rows.iter().zip(&*signs).try_for_each(|(row, sign)| self.resize(row.state, sign))?;
        rows.iter().zip(&*signs).try_for_each(|(row, sign)| self.forget(&row.state.prev, sign))?;
        drop(signs);
        let grads: List = rows.iter().map(|row| row.state.prev.clone()).collect();
        let directions = locals.set("grad_signs", grads.made("sign", |grad| grad.unary(UnaryOp::Sign))?);
        rows.iter().zip(&*directions).try_for_each(|(row, direction)| {
            row.p.ternary_(TernaryOp::Addcmul { value: -1.0 }, direction, &row.state.step_size)
        })
    }
}

impl RpropOptions {
    /// Makes factors of signs: 1, 0 and −1 become the larger factor, 1 and the smaller one.
    fn factors(&self, sign: &Array) -> Result<()> {
        ["gt", "lt", "eq"].into_iter().try_for_each(|name| mask(name, sign))?;
        let (less, more) = (self.etas[0], self.etas[1]);
        sign.unary_(UnaryOp::LeakyRelu { slope: (1.0 - less) / (more - 1.0) })?;
        sign.unary_(UnaryOp::Affine { mul: more - 1.0, add: 1.0 })
    }

    fn resize(&self, s: &State, factor: &Array) -> Result<()> {
        s.step_size.binary_(BinaryOp::Mul, factor)?;
        s.step_size.unary_(UnaryOp::Clamp { min: self.step_sizes[0], max: self.step_sizes[1] })
    }

    /// Makes 0 of the smaller factor and 1 of the others.
    fn keeps(&self, factor: &Array) -> Result<()> {
        factor.unary_(UnaryOp::Affine { mul: 1.0, add: -(self.etas[0] + 1.0) / 2.0 })?;
        factor.unary_(UnaryOp::Sign)?;
        factor.unary_(UnaryOp::Relu)
    }

    /// `grad.copy_(torch.where(sign.eq(etaminus), 0, grad))`.
    fn forget(&self, grad: &Array, factor: &Array) -> Result<()> {
        let temporaries = grad.device().profile().torch_temporaries;
        let made = |name, dtype, dims: &[usize]| {
            temporaries.then(|| context::within(name, || Array::empty(grad.device(), dims, dtype))).transpose()
        };
        let changed = made("eq", DType::Bool, grad.dims())?;
        let kept = {
            let _op = context::op("where");
            let zero = made("scalar_tensor", grad.dtype(), &[])?;
            let kept = context::within("resize_", || factor.copied())?;
            drop(zero);
            kept
        };
        drop(changed);
        self.keeps(&kept)?;
        kept.binary_(BinaryOp::Mul, grad)?;
        grad.copy_(&kept)
    }
}

/// The mask of a comparison, by which PyTorch replaces elements.
fn mask(name: &'static str, compared: &Array) -> Result<()> {
    if compared.device().profile().torch_temporaries {
        context::within(name, || Array::empty(compared.device(), compared.dims(), DType::Bool))?;
    }
    Ok(())
}
