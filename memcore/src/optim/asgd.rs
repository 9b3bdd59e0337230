//! Averaged stochastic gradient descent.

use super::Implementation;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale};
use crate::array::Array;
use crate::backend::kernel::BinaryOp;
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;

/// `p = (1 − λ·η)·p − η·g`, and the average `a += μ·(p − a)`; after a step `η = lr/(1 + λ·lr·t)^α` and `μ = 1/max(1, t − t0)`.
pub type Asgd = ByRule<AsgdOptions>;

/// Settings of [`Asgd`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the parameter.
    pub lambd: f64,
    /// Exponent of the learning rate's decrease.
    pub alpha: f64,
    /// The step from which parameters are averaged.
    pub t0: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for AsgdOptions {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            lambd: 1e-4,
            alpha: 0.75,
            t0: 1e6,
            weight_decay: 0.0,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// The state of a parameter.
pub struct State {
    /// PyTorch keeps the counter, η and μ on the device, in float32.
    step: Array,
    eta: Array,
    mu: Array,
    ax: Array,
}

impl Rule for AsgdOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["ASGD.step", "zero_grad:ASGD.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let scalar = |name: &'static str, value: f64| {
            let made = context::within(name, || Array::full(p.device(), &[], DType::F32, value))?;
            Ok::<_, Error>(made.with_category(Category::OptimizerState))
        };
        let step = scalar("zeros", 0.0)?;
        // `torch.as_tensor(lr, device=…).clone()`.
        let copied = p.device().profile().torch_temporaries.then(|| scalar("to>_to_copy", self.lr)).transpose()?;
        let eta = scalar("clone", self.lr)?;
        drop(copied);
        let mu = scalar("ones", 1.0)?;
        let ax = context::within("zeros_like", || p.zeros_like())?.with_category(Category::OptimizerState);
        Ok(State { ax, step, eta, mu })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        vec![("eta", state.eta.clone()), ("mu", state.mu.clone()), ("ax", state.ax.clone())]
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let grad = gradient(row, (self.maximize, self.weight_decay), Rebound::AtOnce, locals)?;
        let s = row.state;
        scale(row.p, 1.0 - self.lambd * self.eta(row.step))?;
        row.p.binary_(BinaryOp::Add { alpha: -self.eta(row.step) }, &grad)?;
        if self.mu(row.step) == 1.0 {
            s.ax.copy_(row.p)?;
        } else {
            let distance = context::within("sub", || row.p.binary(BinaryOp::Sub, &s.ax))?;
            s.ax.binary_(BinaryOp::Add { alpha: self.mu(row.step) }, &distance)?;
        }
        self.count(row)
    }

    fn update_all(&self, rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
        let grads = gradients(rows, (self.maximize, self.weight_decay), locals)?;
        let decay = BinaryOp::Add { alpha: self.lambd };
        let steps = if self.weight_decay == 0.0 {
            let _op = context::op("_foreach_add");
            rows.iter().zip(&*grads).map(|(row, grad)| grad.binary(decay, row.p)).collect::<Result<List>>()?
        } else {
            rows.iter().zip(&*grads).try_for_each(|(row, grad)| grad.binary_(decay, row.p))?;
            grads
        };
        for (row, step) in rows.iter().zip(&*steps) {
            row.p.binary_(BinaryOp::Add { alpha: -self.eta(row.step) }, step)?;
        }
        drop(steps);
        let distances = {
            let _op = context::op("_foreach_sub");
            rows.iter().map(|row| row.p.binary(BinaryOp::Sub, &row.state.ax)).collect::<Result<List>>()?
        };
        for (row, distance) in rows.iter().zip(&*distances) {
            row.state.ax.binary_(BinaryOp::Add { alpha: self.mu(row.step) }, distance)?;
        }
        drop(distances);
        new_scalars(rows, locals)?;
        rows.iter().try_for_each(|row| self.count(row))
    }
}

impl AsgdOptions {
    /// The learning rate of a step, as float32 holds it.
    fn eta(&self, step: i32) -> f64 {
        let eta = self.lr / (1.0 + self.lambd * self.lr * f64::from(step - 1)).powf(self.alpha);
        f64::from(eta as f32)
    }

    /// The weight of a step in the average, as float32 holds it.
    fn mu(&self, step: i32) -> f64 {
        f64::from((1.0 / (f64::from(step - 1) - self.t0).max(1.0)) as f32)
    }

    /// Writes what the next step is computed with.
    fn count(&self, row: &Row<'_, State>) -> Result<()> {
        row.state.step.fill_(f64::from(row.step))?;
        row.state.eta.fill_(self.eta(row.step + 1))?;
        row.state.mu.fill_(self.mu(row.step + 1))
    }
}

/// The scalars that PyTorch computes on the device from the counters there: η by five operators, μ by a copy from the host. Nothing reads them here.
fn new_scalars(rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    if !first.p.device().profile().torch_temporaries {
        return Ok(());
    }
    let scalar = |name: &'static str| context::within(name, || first.state.step.empty_like());
    let eta = |_: &Row<'_, State>| {
        let product = scalar("mul")?;
        let sum = scalar("add")?;
        drop(product);
        let power = scalar("pow")?;
        drop(sum);
        let inverse = scalar("reciprocal")?;
        let eta = scalar("mul")?;
        drop((inverse, power));
        Ok(eta)
    };
    let etas = rows.iter().map(eta).collect::<Result<List>>()?;
    let mus = rows.iter().map(|_| scalar("to>_to_copy")).collect::<Result<List>>()?;
    // The branch of the capturable form assigns `new_mus` first, which is before this one.
    locals.set("new_mus", mus);
    locals.set("new_etas", etas);
    Ok(())
}
