//! Adafactor: the second moment of a matrix is kept as a row and a column.

use super::Implementation;
use super::clip::norm;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, scale};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, ReduceOp, TernaryOp, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;

/// `r` and `c` average the squares of the gradient over its last and its last but one dimension, `v = r·c/mean(r)`; of a vector `v` averages the squares
/// themselves. `u = g/√v`, `p −= α·u/max(1, rms(u)/d)` with `α = max(eps2, rms(p))·min(lr, 1/√t)`. PyTorch's default form is the loop.
pub type Adafactor = ByRule<AdafactorOptions>;

/// Settings of [`Adafactor`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdafactorOptions {
    /// Learning rate.
    pub lr: f64,
    /// Exponent of the decay of the averages.
    pub beta2_decay: f64,
    /// The least root mean square of a parameter.
    pub eps2: f64,
    /// The largest root mean square of an update.
    pub d: f64,
    /// Weight decay, subtracted from the parameter.
    pub weight_decay: f64,
    /// Ascends instead of descending.
    pub maximize: bool,
}

impl Default for AdafactorOptions {
    fn default() -> Self {
        Self { lr: 1e-2, beta2_decay: -0.8, eps2: 1e-3, d: 1.0, weight_decay: 0.0, maximize: false }
    }
}

/// The averages of a parameter's squared gradients.
pub enum State {
    /// Of a matrix, or several.
    Factored {
        /// Over the last dimension.
        row_var: Array,
        /// Over the last but one.
        col_var: Array,
    },
    /// Of a vector or a scalar.
    Whole(Array),
}

/// Zeros that belong to the optimizer.
pub(super) fn kept(name: &'static str, p: &Array, dims: &[usize], dtype: DType) -> Result<Array> {
    let made = context::within(name, || Array::zeros(p.device(), dims, dtype))?;
    Ok(made.with_category(Category::OptimizerState))
}

impl Rule for AdafactorOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["Adafactor.step", "zero_grad:Adafactor.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        Implementation::Loop
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let rank = p.rank();
        if rank < 2 {
            return Ok(State::Whole(kept("zeros_like", p, p.dims(), p.dtype())?));
        }
        let without = |axis: usize| {
            let mut dims = p.dims().to_vec();
            dims[axis] = 1;
            kept("new_zeros", p, &dims, p.dtype())
        };
        Ok(State::Factored { row_var: without(rank - 1)?, col_var: without(rank - 2)? })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        match state {
            State::Factored { row_var, col_var } => vec![("row_var", row_var.clone()), ("col_var", col_var.clone())],
            State::Whole(variance) => vec![("variance", variance.clone())],
        }
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let grad = gradient(row, (self.maximize, 0.0), Rebound::Later, locals)?;
        let step = f64::from(row.step);
        let alpha = self.eps2.max(root_mean_square(row.p)?) * self.lr.min(1.0 / step.sqrt());
        if self.weight_decay != 0.0 {
            scale(row.p, 1.0 - self.lr * self.weight_decay)?;
        }
        let weight = step.powf(self.beta2_decay);
        let estimate = match row.state {
            State::Factored { row_var, col_var } => self.product(&grad, (row_var, col_var), weight, locals)?,
            State::Whole(variance) => {
                let squared = locals.set("grad_squared", context::within("mul", || grad.mul(&grad))?);
                variance.ternary_(TernaryOp::Lerp { weight }, &squared, &squared)?;
                drop(squared);
                locals.set("var_estimate", context::within("clone", || variance.copied())?)
            }
        };
        let least = least(row.p.dtype());
        estimate.unary_(UnaryOp::Clamp { min: least * least, max: f64::INFINITY })?;
        estimate.unary_(UnaryOp::Rsqrt)?;
        let update = locals.set("update", estimate);
        update.binary_(BinaryOp::Mul, &grad)?;
        let denom = (root_mean_square(&update)? / self.d).max(1.0);
        row.p.binary_(BinaryOp::Add { alpha: -alpha / denom }, &update)
    }

    fn update_all(&self, rows: &[Row<'_, State>], _locals: &mut Locals<List>) -> Result<()> {
        let mut locals = Locals::new();
        rows.iter().try_for_each(|row| self.update(row, &mut locals))
    }
}

impl AdafactorOptions {
    /// Updates row and column; returns `r·c/mean(r)`.
    fn product(
        &self,
        grad: &Array,
        (row_var, col_var): (&Array, &Array),
        weight: f64,
        locals: &mut Locals<Array>,
    ) -> Result<Array> {
        let rank = grad.rank();
        for (name, average, axis) in [("row_mean", row_var, rank - 1), ("col_mean", col_var, rank - 2)] {
            let mean = {
                let _op = context::op("linalg_vector_norm");
                grad.reduce(ReduceOp::SumSquares, &[axis], true)?
            };
            let mean = locals.set(name, mean);
            scale(&mean, 1.0 / grad.dims()[axis] as f64)?;
            average.ternary_(TernaryOp::Lerp { weight }, &mean, &mean)?;
        }
        let product = context::within("matmul>mm", || match rank {
            2 => row_var.matmul(col_var),
            // Of a convolution's windows; the product of a column and a row has one summand.
            _ => row_var.mul(col_var),
        })?;
        let estimate = locals.set("var_estimate", product);
        let mean = context::within("mean", || row_var.reduce(ReduceOp::Mean, &[rank - 2], true))?;
        mean.unary_(UnaryOp::Clamp { min: least(grad.dtype()), max: f64::INFINITY })?;
        estimate.binary_(BinaryOp::Div, &mean)?;
        Ok(estimate)
    }
}

/// `x.norm(2).item()/√n`. Without values 1.
fn root_mean_square(x: &Array) -> Result<f64> {
    let norm = norm(x)?;
    if !x.device().computes() {
        return Ok(1.0);
    }
    let value = norm.to_f64()?.first().copied().unwrap_or(0.0);
    Ok(value / (x.numel() as f64).sqrt())
}

/// `torch.finfo(dtype).eps`.
fn least(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 2.0_f64.powi(-10),
        DType::BF16 => 2.0_f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    }
}

/// Adafactor as transformers has it, with the `Trainer`'s settings: `lr` as it is, neither scaled by the parameter nor by the step.
pub type PretrainedAdafactor = ByRule<PretrainedAdafactorOptions>;

/// Settings of [`PretrainedAdafactor`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PretrainedAdafactorOptions {
    /// Learning rate.
    pub lr: f64,
    /// Exponent of the decay of the averages.
    pub decay_rate: f64,
    /// Added to the squares.
    pub eps: f64,
    /// The largest root mean square of an update.
    pub clip_threshold: f64,
    /// Weight decay, subtracted from the parameter.
    pub weight_decay: f64,
}

impl Default for PretrainedAdafactorOptions {
    fn default() -> Self {
        Self { lr: 1e-3, decay_rate: -0.8, eps: 1e-30, clip_threshold: 1.0, weight_decay: 0.0 }
    }
}

/// The averages, in float32, and the parameter's root mean square, which the state holds until the next step.
pub struct PretrainedState {
    averages: Vec<(&'static str, Array)>,
    root_mean_square: std::cell::RefCell<Option<Array>>,
}

impl Rule for PretrainedAdafactorOptions {
    type State = PretrainedState;

    fn names(&self) -> [&'static str; 2] {
        ["Adafactor.step", "zero_grad:Adafactor.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        Implementation::Loop
    }

    /// The loop allocates a parameter's state between the updates of others.
    fn begins_in_update(&self) -> bool {
        true
    }

    fn first_state(&self, p: &Array) -> Result<PretrainedState> {
        let dims = p.dims();
        let averages = match dims {
            [before @ .., _, last] if dims.len() >= 2 => {
                let column: Vec<usize> = before.iter().copied().chain([*last]).collect();
                let zeros = |dims: &[usize]| kept("to>_to_copy", p, dims, wide(p.dtype()));
                let row = zeros(&dims[..dims.len() - 1])?;
                vec![("exp_avg_sq_row", row), ("exp_avg_sq_col", zeros(&column)?)]
            }
            _ => vec![("exp_avg_sq", kept("zeros_like", p, dims, wide(p.dtype()))?)],
        };
        Ok(PretrainedState { averages, root_mean_square: std::cell::RefCell::default() })
    }

    fn tensors(&self, state: &PretrainedState) -> Vec<(&'static str, Array)> {
        state.averages.clone()
    }

    fn before_state(&self, p: &Array, grad: &Array, locals: &mut Locals<Array>) -> Result<()> {
        if wide(p.dtype()) != p.dtype() {
            locals.set("grad", context::within("to>_to_copy", || grad.cast(DType::F32))?);
        }
        Ok(())
    }

    fn update(&self, row: &Row<'_, PretrainedState>, locals: &mut Locals<Array>) -> Result<()> {
        let narrow = wide(row.p.dtype()) != row.p.dtype();
        let grad = locals.get("grad").filter(|_| narrow).unwrap_or_else(|| row.grad.clone());
        let p = match narrow {
            true => locals.set("p", context::within("to>_to_copy", || row.p.cast(DType::F32))?),
            false => row.p.clone(),
        };
        row.state.root_mean_square.replace(Some(scaled_norm(&p)?));
        let beta = 1.0 - f64::from(row.step).powf(self.decay_rate);
        let squares = {
            let squared = context::within("pow", || grad.unary(UnaryOp::Square))?;
            context::within("add", || squared.affine(1.0, self.eps))?
        };
        let squares = locals.set("update", squares);
        let update = match &*row.state.averages {
            [(_, rows), (_, columns)] => {
                for (average, axis) in [(rows, grad.rank() - 1), (columns, grad.rank() - 2)] {
                    let mean = context::within("mean", || squares.reduce(ReduceOp::Mean, &[axis], false))?;
                    average_of(average, beta, &mean)?;
                }
                drop(squares);
                locals.set("update", inverse_root(rows, columns)?)
            }
            averages => {
                let [(_, average), ..] = averages else { return Ok(()) };
                average_of(average, beta, &squares)?;
                drop(squares);
                locals.set("update", context::within("rsqrt", || average.unary(UnaryOp::Rsqrt))?)
            }
        };
        update.binary_(BinaryOp::Mul, &grad)?;
        self.apply(row, &p, &update)?;
        if narrow { row.p.copy_(&p) } else { Ok(()) }
    }

    fn update_all(&self, rows: &[Row<'_, PretrainedState>], _locals: &mut Locals<List>) -> Result<()> {
        let mut locals = Locals::new();
        rows.iter().try_for_each(|row| self.update(row, &mut locals))
    }
}

impl PretrainedAdafactorOptions {
    fn apply(&self, _row: &Row<'_, PretrainedState>, p: &Array, update: &Array) -> Result<()> {
        let scaled = scaled_norm(update)?;
        let clipped = context::within("div", || scaled.affine(1.0 / self.clip_threshold, 0.0))?;
        drop(scaled);
        clipped.unary_(UnaryOp::Clamp { min: 1.0, max: f64::INFINITY })?;
        update.binary_(BinaryOp::Div, &clipped)?;
        drop(clipped);
        scale(update, self.lr)?;
        if self.weight_decay != 0.0 {
            scale(p, 1.0 - self.weight_decay * self.lr)?;
        }
        let negated = context::within("neg", || update.unary(UnaryOp::Neg))?;
        p.binary_(BinaryOp::Add { alpha: 1.0 }, &negated)
    }
}

/// `average = beta·average + (1 − beta)·x`.
fn average_of(average: &Array, beta: f64, x: &Array) -> Result<()> {
    scale(average, beta)?;
    average.binary_(BinaryOp::Add { alpha: 1.0 - beta }, x)
}

/// `_approx_sq_grad`: `1/√(row/mean(row))·1/√column`.
fn inverse_root(row: &Array, column: &Array) -> Result<Array> {
    let last = row.rank() - 1;
    let mean = context::within("mean", || row.reduce(ReduceOp::Mean, &[last], true))?;
    let by_row = context::within("div", || row.binary(BinaryOp::Div, &mean))?;
    drop(mean);
    by_row.unary_(UnaryOp::Rsqrt)?;
    let by_column = context::within("rsqrt", || column.unary(UnaryOp::Rsqrt))?;
    let product = context::within("mul", || by_row.unsqueeze(last + 1)?.mul(&by_column.unsqueeze(last)?))?;
    drop(by_row);
    drop(by_column);
    Ok(product)
}

/// `x.norm(2)/√n`, on the device.
fn scaled_norm(x: &Array) -> Result<Array> {
    let norm = norm(x)?;
    context::within("div", || norm.affine(1.0 / (x.numel() as f64).sqrt(), 0.0))
}

/// Floats of 16 bits are updated in float32.
fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}
