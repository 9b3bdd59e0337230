//! Adam and AdamW.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Implementation, Optimizer, ParameterState, Parameters, decayed, drop_reversed, negated, negated_in_place_of, nth,
    with_gradients,
};
use crate::array::Array;
use crate::backend::kernel::{AdamStep, AdamTensors, BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::nn::Parameter;

/// Settings of [`Adam`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the two moments.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// AdamW: the weight decay is subtracted from the parameter instead of added to the gradient.
    pub decoupled: bool,
    /// Divides by the largest second moment so far.
    pub amsgrad: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Keep the step counters on the device, so that a step can be captured in a graph; only foreach and fused.
    pub capturable: bool,
    /// Loop, foreach or fused.
    pub implementation: Implementation,
}

impl Default for AdamOptions {
    /// PyTorch's defaults of `Adam`; [`AdamOptions::adamw`] has those of `AdamW`.
    fn default() -> Self {
        Self::adam()
    }
}

impl AdamOptions {
    /// PyTorch's defaults of `Adam`.
    pub fn adam() -> Self {
        Self {
            lr: 1e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            amsgrad: false,
            maximize: false,
            capturable: false,
            implementation: Implementation::default(),
        }
    }

    /// PyTorch's defaults of `AdamW`: a weight decay of 0.01, decoupled.
    pub fn adamw() -> Self {
        Self { weight_decay: 1e-2, decoupled: true, ..Self::adam() }
    }
}

/// Adam and AdamW. Each parameter has two moments (three with AMSGrad), allocated at its first step.
pub struct Adam {
    // The state is dropped before the parameters.
    states: Vec<Option<State>>,
    parameters: Parameters,
    options: AdamOptions,
}

/// Complex numbers as pairs of floats, which is how PyTorch updates them; other numbers as they are.
fn as_floats(array: Array) -> Result<Array> {
    if array.dtype().is_complex() { array.as_real() } else { Ok(array) }
}

struct State {
    /// Steps taken. A host number unless fused, as in PyTorch.
    steps: i32,
    /// Steps taken, on the device in f32, for the fused kernel.
    device_steps: Option<Array>,
    exp_avg: Array,
    exp_avg_sq: Array,
    max_exp_avg_sq: Option<Array>,
}

impl Adam {
    /// Creates the optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the capturable form of the loop, whose temporaries are not known here.
    pub fn new(parameters: Vec<Parameter>, options: AdamOptions) -> Result<Self> {
        if options.capturable && options.implementation == Implementation::Loop {
            return Err(Error::invalid("capturable", "needs the foreach or the fused implementation"));
        }
        let states = parameters.iter().map(|_| None).collect();
        Ok(Self { states, parameters: Parameters(parameters), options })
    }

    /// Allocates missing state: the step counter (if it is on the device), first moment, second moment.
    fn prepare(&mut self, gradients: &[(usize, Array)]) -> Result<()> {
        for (i, _) in gradients {
            if self.states[*i].is_none() {
                self.states[*i] = Some(self.options.first_state(self.parameters[*i].array())?);
            }
        }
        Ok(())
    }

    /// Counts a step of a parameter; returns the parameter and its state.
    fn advance(&mut self, i: usize) -> Option<(&Array, &State)> {
        let state = self.states[i].as_mut()?;
        state.steps += 1;
        Some((self.parameters[i].array(), state))
    }

    fn step_loop(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = self.options;
        // PyTorch's loop variable: the last denominator lives until the next one replaces it.
        let mut denominator: Option<Array> = None;
        // So does the last gradient, if it is a temporary.
        let mut held: Option<Array> = None;
        for (i, grad) in gradients {
            let Some((p, s)) = self.advance(i) else { continue };
            let mut grad = negated_in_place_of(&mut held, grad, o.maximize)?;
            if o.weight_decay != 0.0 {
                if o.decoupled {
                    p.unary_(UnaryOp::Affine { mul: 1.0 - o.lr * o.weight_decay, add: 0.0 })?;
                } else {
                    grad = context::within("add", || grad.binary(BinaryOp::Add { alpha: o.weight_decay }, p))?;
                }
            }
            let grad = &*held.insert(grad);
            o.update_moments(s, grad)?;
            let root = {
                let _op = context::op("sqrt");
                o.second_moment(s)?.unary(UnaryOp::Sqrt)?
            };
            let (step_size, root_correction) = o.corrections(s.steps);
            let scaled = {
                let _op = context::op("div");
                root.affine(1.0 / root_correction, 0.0)?
            };
            drop(root);
            scaled.unary_(UnaryOp::Affine { mul: 1.0, add: o.eps })?;
            let previous = denominator.replace(scaled);
            drop(previous);
            if let Some(denominator) = &denominator {
                p.ternary_(TernaryOp::Addcdiv { value: -step_size }, &s.exp_avg, denominator)?;
            }
        }
        Ok(())
    }

    /// Updates the parameters of each element type together, those of the last type first: PyTorch goes through a hash table of the types, which holds
    /// the newest first.
    fn step_by_type(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let mut groups: Vec<(DType, Vec<(usize, Array)>)> = Vec::new();
        for (i, grad) in gradients {
            match groups.iter_mut().find(|(dtype, _)| *dtype == grad.dtype()) {
                Some((_, group)) => group.push((i, grad)),
                None => groups.push((grad.dtype(), vec![(i, grad)])),
            }
        }
        // The roots of one type live until those of the next one are made, as the loop's name for them does.
        let mut roots = Vec::new();
        groups.into_iter().rev().try_for_each(|(_, group)| self.step_foreach(group, &mut roots))?;
        drop_reversed(roots);
        Ok(())
    }

    fn step_foreach(&mut self, gradients: Vec<(usize, Array)>, held: &mut Vec<Array>) -> Result<()> {
        let o = self.options;
        let (indices, grads): (Vec<usize>, Vec<Array>) = gradients.into_iter().unzip();
        let mut grads = grads.into_iter().map(as_floats).collect::<Result<Vec<Array>>>()?;
        let values: Vec<Array> =
            indices.iter().map(|&i| as_floats(self.parameters[i].array().clone())).collect::<Result<_>>()?;
        if o.maximize {
            grads = negated(&grads)?;
        }
        for &i in &indices {
            self.advance(i);
        }
        let rows = || indices.iter().zip(&values).filter_map(|(&i, p)| Some((p, self.states[i].as_ref()?)));
        if o.weight_decay != 0.0 && o.decoupled {
            for (p, _) in rows() {
                p.unary_(UnaryOp::Affine { mul: 1.0 - o.lr * o.weight_decay, add: 0.0 })?;
            }
        } else if o.weight_decay != 0.0 {
            grads = decayed(grads, rows().map(|(p, _)| p), o.weight_decay, o.maximize)?;
        }
        for ((_, s), grad) in rows().zip(&grads) {
            o.update_moments(s, grad)?;
        }
        drop_reversed(grads);
        let corrections = self.corrections_on_device(&indices)?;
        let roots = {
            let _op = context::op("_foreach_sqrt");
            rows().map(|(_, s)| o.second_moment(s)?.unary(UnaryOp::Sqrt)).collect::<Result<Vec<Array>>>()?
        };
        drop_reversed(std::mem::replace(held, roots));
        for ((p, s), root) in rows().zip(held.iter()) {
            let (step_size, root_correction) = o.corrections(s.steps);
            root.unary_(UnaryOp::Affine { mul: 1.0 / root_correction, add: o.eps })?;
            p.ternary_(TernaryOp::Addcdiv { value: -step_size }, &s.exp_avg, root)?;
        }
        for temporaries in corrections {
            drop_reversed(temporaries);
        }
        Ok(())
    }

    /// The temporaries that PyTorch computes from the counters on the device: a scalar for each moment of each
    /// parameter. Nothing reads them here, because the same numbers are known on the host.
    fn corrections_on_device(&self, indices: &[usize]) -> Result<[Vec<Array>; 2]> {
        let mut temporaries = [Vec::new(), Vec::new()];
        let steps = || indices.iter().filter_map(|&i| self.states[i].as_ref()?.device_steps.as_ref());
        let Some(first) = steps().next() else { return Ok(temporaries) };
        for step in steps() {
            step.unary_(UnaryOp::Affine { mul: 1.0, add: 1.0 })?;
        }
        if first.device().profile().torch_temporaries {
            let _op = context::op("_foreach_pow");
            for list in &mut temporaries {
                *list = steps().map(Array::empty_like).collect::<Result<_>>()?;
            }
        }
        Ok(temporaries)
    }

    fn step_fused(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = self.options;
        // Parameters that had no gradient in every step count fewer steps: they are another call.
        let mut by_count: BTreeMap<i32, Vec<AdamTensors>> = BTreeMap::new();
        for (i, grad) in &gradients {
            let Some((p, s)) = self.advance(*i) else { continue };
            let Some(step) = &s.device_steps else { continue };
            step.fill_(f64::from(s.steps))?;
            p.storage().bump_version();
            by_count.entry(s.steps).or_default().push(AdamTensors {
                param: p.operand(),
                grad: grad.operand(),
                exp_avg: s.exp_avg.operand(),
                exp_avg_sq: s.exp_avg_sq.operand(),
                max_exp_avg_sq: s.max_exp_avg_sq.as_ref().map(Array::operand),
                step: step.operand(),
            });
        }
        let Some((first, _)) = gradients.first() else { return Ok(()) };
        let device = self.parameters[*first].array().device();
        by_count.into_iter().try_for_each(|(step_count, tensors)| {
            device.launch(AdamStep {
                tensors: Arc::from(tensors),
                lr: o.lr,
                betas: o.betas,
                eps: o.eps,
                weight_decay: o.weight_decay,
                decoupled: o.decoupled,
                maximize: o.maximize,
                step_count,
                found_inf: None,
            })
        })
    }
}

impl AdamOptions {
    /// Creates the state of a parameter before its first step.
    fn first_state(&self, p: &Array) -> Result<State> {
        let zeros = |p: &Array| as_floats(p.zeros_like()?.with_category(Category::OptimizerState));
        let device_steps = if self.capturable || self.implementation == Implementation::Fused {
            let _op = context::op("zeros");
            Some(Array::zeros(p.device(), &[], DType::F32)?.with_category(Category::OptimizerState))
        } else {
            None
        };
        let _op = context::op("zeros_like");
        let (exp_avg, exp_avg_sq) = (zeros(p)?, zeros(p)?);
        let max_exp_avg_sq = if self.amsgrad { Some(zeros(p)?) } else { None };
        Ok(State { steps: 0, device_steps, exp_avg, exp_avg_sq, max_exp_avg_sq })
    }

    fn update_moments(&self, s: &State, grad: &Array) -> Result<()> {
        s.exp_avg.ternary_(TernaryOp::Lerp { weight: 1.0 - self.betas[0] }, grad, grad)?;
        s.exp_avg_sq.unary_(UnaryOp::Affine { mul: self.betas[1], add: 0.0 })?;
        s.exp_avg_sq.ternary_(TernaryOp::Addcmul { value: 1.0 - self.betas[1] }, grad, grad)
    }

    /// The second moment whose root the step divides by.
    fn second_moment<'a>(&self, s: &'a State) -> Result<&'a Array> {
        let Some(largest) = &s.max_exp_avg_sq else { return Ok(&s.exp_avg_sq) };
        largest.binary_(BinaryOp::Maximum, &s.exp_avg_sq)?;
        Ok(largest)
    }

    /// `lr/(1 − β₁ᵗ)` and `√(1 − β₂ᵗ)`.
    fn corrections(&self, steps: i32) -> (f64, f64) {
        (self.lr / (1.0 - self.betas[0].powi(steps)), (1.0 - self.betas[1].powi(steps)).sqrt())
    }
}

impl Optimizer for Adam {
    fn step(&mut self) -> Result<()> {
        let _op = context::op(if self.options.decoupled { "AdamW.step" } else { "Adam.step" });
        let gradients = with_gradients(&self.parameters);
        self.prepare(&gradients)?;
        match self.options.implementation {
            Implementation::Loop => self.step_loop(gradients),
            Implementation::Foreach => self.step_by_type(gradients),
            Implementation::Fused => self.step_fused(gradients),
        }
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let state = self.states.get(index)?.as_ref()?;
        let mut tensors = vec![("exp_avg", state.exp_avg.clone()), ("exp_avg_sq", state.exp_avg_sq.clone())];
        tensors.extend(state.max_exp_avg_sq.clone().map(|largest| ("max_exp_avg_sq", largest)));
        Some(ParameterState { steps: Some(state.steps), tensors })
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        let state = self.options.first_state(nth(&self.parameters, index)?.array())?;
        if let Some(counter) = &state.device_steps {
            counter.fill_(f64::from(steps))?;
        }
        self.states[index] = Some(State { steps, ..state });
        Ok(self.state(index))
    }

    fn takes_loss_scale(&self) -> bool {
        self.options.implementation == Implementation::Fused
    }

    fn zero_grad_name(&self) -> &'static str {
        if self.options.decoupled { "zero_grad:AdamW.zero_grad" } else { "zero_grad:Adam.zero_grad" }
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}
