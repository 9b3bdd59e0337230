//! Muon: momentum whose matrix is made orthogonal.

use super::Implementation;
use super::clip::norm;
use super::locals::{List, Locals};
use super::rule::{ByRule, Row, Rule, scale};
use crate::array::{Added, Array, MatmulOptions};
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::nn::Parameter;

/// `b = μ·b + (1 − μ)·g`, `u = NS((1 − μ)·g + μ·b)`, `p = (1 − η·λ)·p − η·√max(1, rows/columns)·u`: `torch.optim.Muon`, which takes matrices alone.
pub type Muon = ByRule<MuonOptions>;

/// Settings of [`Muon`], with PyTorch's names. Nesterov's form, five iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Momentum.
    pub momentum: f64,
}

impl Default for MuonOptions {
    fn default() -> Self {
        Self { lr: 1e-3, weight_decay: 0.1, momentum: 0.95 }
    }
}

/// `ns_coefficients`, `ns_steps` and `eps`.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
const ITERATIONS: usize = 5;
const LEAST_NORM: f64 = 1e-7;

impl Rule for MuonOptions {
    type State = Array;

    fn names(&self) -> [&'static str; 2] {
        ["Muon.step", "zero_grad:Muon.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        Implementation::Loop
    }

    fn accepts(&self, parameter: &Parameter) -> Result<()> {
        match parameter.array().rank() {
            2 => Ok(()),
            _ => Err(Error::invalid("Muon", format!("{} is not a matrix", parameter.path()))),
        }
    }

    fn first_state(&self, p: &Array) -> Result<Array> {
        Ok(context::within("zeros_like", || p.zeros_like())?.with_category(Category::OptimizerState))
    }

    fn tensors(&self, state: &Array) -> Vec<(&'static str, Array)> {
        vec![("momentum_buffer", state.clone())]
    }

    fn update(&self, row: &Row<'_, Array>, locals: &mut Locals<Array>) -> Result<()> {
        row.state.ternary_(TernaryOp::Lerp { weight: 1.0 - self.momentum }, &row.grad, &row.grad)?;
        let mixed = context::within("lerp", || {
            let op = TernaryOp::Lerp { weight: self.momentum };
            Array::ternary(op, &row.grad, row.state, row.state, row.grad.dims())
        })?;
        let update = locals.set("update", mixed);
        let update = locals.set("update", orthogonal(update)?);
        scale(row.p, 1.0 - self.lr * self.weight_decay)?;
        let [rows, columns] = [row.p.dims()[0], row.p.dims()[1]];
        subtract(row.p, &update, self.lr * (rows as f64 / columns as f64).max(1.0).sqrt())
    }

    fn update_all(&self, rows: &[Row<'_, Array>], _locals: &mut Locals<List>) -> Result<()> {
        let mut locals = Locals::new();
        rows.iter().try_for_each(|row| self.update(row, &mut locals))
    }
}

/// `_zeropower_via_newtonschulz`, in bfloat16.
fn orthogonal(update: Array) -> Result<Array> {
    let [a, b, c] = COEFFICIENTS;
    let is_tall = update.dims()[0] > update.dims()[1];
    let narrow = update.dtype() == DType::BF16;
    let mut x = if narrow { update.clone() } else { context::within("to>_to_copy", || update.cast(DType::BF16))? };
    if is_tall {
        x = x.t()?;
    }
    {
        let least = {
            let norm = norm(&x)?;
            let least = UnaryOp::Clamp { min: LEAST_NORM, max: f64::INFINITY };
            context::within("clamp", || norm.unary(least))?
        };
        x.binary_(BinaryOp::Div, &least)?;
    }
    let (mut gram, mut polynomial): (Option<Array>, Option<Array>) = (None, None);
    for _ in 0..ITERATIONS {
        let product = context::within("matmul>mm", || x.matmul(&x.t()?))?;
        // Each name keeps its value until the next one exists.
        let g = gram.insert(product);
        let made = context::within("addmm", || g.matmul_with(g, plus(g, b, c)))?;
        let p = polynomial.insert(made);
        x = context::within("addmm", || p.matmul_with(&x, plus(&x, a, 1.0)))?;
    }
    drop(gram);
    drop(polynomial);
    if is_tall { x.t() } else { Ok(x) }
}

/// `beta·to + alpha·(a @ b)`.
fn plus(to: &Array, beta: f64, alpha: f64) -> MatmulOptions<'_> {
    MatmulOptions { added: Some(Added { to, beta, alpha }), ..MatmulOptions::default() }
}

/// `p -= rate·update`, of types that may differ: one kernel, which makes nothing.
fn subtract(p: &Array, update: &Array, rate: f64) -> Result<()> {
    if p.dtype() == update.dtype() {
        return p.binary_(BinaryOp::Add { alpha: -rate }, update);
    }
    if p.device().computes() {
        let [values, updates] = [p.to_f64()?, update.to_f64()?];
        let moved: Vec<f64> = values.iter().zip(&updates).map(|(value, update)| value - rate * update).collect();
        p.write_values(&moved)?;
    }
    Ok(())
}
