//! Every optimizer in every form, with every option, on the device, against values that PyTorch computed: the
//! parameters after each step, and the final state, also for a run that continues from its saved state. Gradient
//! clipping is tested likewise.

mod recording;

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::nn::{Parameter, write_f32};
use memcore::optim::{Implementation, Optimizer, clip_grad_norm_with, clip_grad_value};
use memcore::{Array, DType, Error, Result};

use super::trial::trial;
use crate::case::short;
use crate::device::Device;
use crate::execute::Verdict;
use crate::tolerance::epsilon;
use recording::{Clip, Run, Values, recording};

/// Allowed distance of a value from PyTorch's, in ε of the larger of 1 and the value. A step has some ten roundings.
/// After four steps the values that PyTorch's own forms compute in float32 differ by a few ε.
const EPSILONS: f64 = 64.0;

/// The step after which a run is saved, and another optimizer continues it.
const SAVED_AFTER: usize = 2;

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let mut out = Vec::new();
    for dtype in [DType::F64, DType::F32] {
        for run in &recording().runs {
            for (form, _) in &run.forms {
                let name = format!("optimizers::{}::{}::{form}", run.full_name(), short(dtype));
                out.push(trial(name, device, move |device| {
                    on(device, dtype, |device| follows(device, run, form, dtype))
                }));
            }
        }
        for clip in &recording().clips {
            for (form, implementation) in [("for", Implementation::Loop), ("foreach", Implementation::Foreach)] {
                let name = format!("optimizers::clip_{}::{}::{form}", clip.name, short(dtype));
                out.push(trial(name, device, move |device| {
                    on(device, dtype, |device| clips(device, clip, implementation, dtype))
                }));
            }
        }
    }
    out
}

/// Runs a trial on a core device; skips it if the backend cannot run it.
fn on(
    device: &Device,
    dtype: DType,
    run: impl FnOnce(&memcore::Device) -> Result<Result<(), String>>,
) -> Result<Verdict, String> {
    let backend = device.backend();
    if !backend.limits().dtypes.contains(&dtype) {
        return Ok(Verdict::Skipped(format!("{} has no {dtype}", backend.name())));
    }
    match run(&memcore::Device::builder(device.shared()).build()) {
        Ok(verdict) => verdict.map(|()| Verdict::Passed),
        Err(error @ Error::Unsupported { .. }) => Ok(Verdict::Skipped(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs all steps at once, then in two halves with the state carried over.
fn follows(device: &memcore::Device, run: &Run, form: &str, dtype: DType) -> Result<Result<(), String>> {
    let mut first = Training::new(device, run, form, dtype)?;
    for (step, want) in run.parameters.iter().enumerate() {
        first.step(step)?;
        if let Err(problem) = near(dtype, want, &first.values()?) {
            return Ok(Err(format!("after {} steps: {problem}", step + 1)));
        }
    }
    let single = run.forms.iter().find(|(name, _)| name == form).map(|(_, values)| values);
    if let (Some(want), DType::F32) = (single, dtype)
        && let Err(problem) = near(dtype, want, &first.values()?)
    {
        return Ok(Err(format!("of PyTorch's own float32: {problem}")));
    }
    if let Err(problem) = first.check_state(run)? {
        return Ok(Err(problem));
    }
    first.optimizer.zero_grad(false)?;
    for grad in first.parameters.iter().filter_map(Parameter::grad) {
        if grad.to_f64()?.iter().any(|&x| x != 0.0) {
            return Ok(Err("zero_grad leaves a gradient".into()));
        }
    }
    let mut resumed = first_half(device, run, form, dtype)?.resumed(device, run, form)?;
    (SAVED_AFTER..run.parameters.len()).try_for_each(|step| resumed.step(step))?;
    let got = resumed.values()?;
    let verdict = run.parameters.last().map_or(Ok(()), |want| near(dtype, want, &got));
    Ok(verdict.map_err(|problem| format!("resumed after {SAVED_AFTER} steps: {problem}")))
}

fn first_half(device: &memcore::Device, run: &Run, form: &str, dtype: DType) -> Result<Training> {
    let mut training = Training::new(device, run, form, dtype)?;
    (0..SAVED_AFTER).try_for_each(|step| training.step(step))?;
    Ok(training)
}

/// An optimizer with its parameters.
struct Training {
    parameters: Vec<Parameter>,
    optimizer: Box<dyn Optimizer>,
}

impl Training {
    fn new(device: &memcore::Device, run: &Run, form: &str, dtype: DType) -> Result<Self> {
        Self::with_values(device, run, form, dtype, &recording().parameters)
    }

    fn with_values(device: &memcore::Device, run: &Run, form: &str, dtype: DType, values: &Values) -> Result<Self> {
        let parameters = parameters(device, dtype, values)?;
        let optimizer = run.optimizer(form, parameters.clone())?;
        Ok(Self { parameters, optimizer })
    }

    /// Takes step number `step` with its recorded gradients.
    fn step(&mut self, step: usize) -> Result<()> {
        self.optimizer.zero_grad(true)?;
        set_gradients(&self.parameters, &recording().gradients[step])?;
        self.optimizer.step()
    }

    fn values(&self) -> Result<Values> {
        self.parameters.iter().map(|p| p.array().to_f64()).collect()
    }

    /// Compares the optimizer's state with PyTorch's. A state that only some parameters have is listed for these alone, in their order.
    fn check_state(&self, run: &Run) -> Result<Result<(), String>> {
        let (counted, wanted): (Vec<_>, Vec<_>) = run.state.iter().partition(|(name, _)| name == "step");
        let mut seen = vec![0; wanted.len()];
        for i in 0..self.parameters.len() {
            let state = self.optimizer.state(i);
            let (steps, tensors) = state.map_or((None, Vec::new()), |state| (state.steps, state.tensors));
            // SGD and RMSprop count no steps here: nothing reads a counter.
            if let (Some(steps), Some((_, counted))) = (steps, counted.first())
                && f64::from(steps) != counted[i][0]
            {
                return Ok(Err(format!("parameter {i}: {steps} steps instead of {}", counted[i][0])));
            }
            for (name, tensor) in &tensors {
                let Some(at) = wanted.iter().position(|(known, _)| known == name) else {
                    return Ok(Err(format!("PyTorch keeps no {name}")));
                };
                let Some(values) = wanted[at].1.get(seen[at]) else {
                    return Ok(Err(format!("PyTorch keeps no {name} of parameter {i}")));
                };
                seen[at] += 1;
                if let Err(problem) = near(tensor.dtype(), std::slice::from_ref(values), &[tensor.to_f64()?]) {
                    return Ok(Err(format!("{name} of parameter {i}: {problem}")));
                }
            }
        }
        for ((name, values), seen) in wanted.iter().zip(seen) {
            if values.len() != seen {
                return Ok(Err(format!("PyTorch keeps {name} of {} parameters, and not of {seen}", values.len())));
            }
        }
        Ok(Ok(()))
    }

    /// Creates another optimizer on other parameters, with a copy of this one's state.
    fn resumed(&self, device: &memcore::Device, run: &Run, form: &str) -> Result<Self> {
        let dtype = self.parameters[0].array().dtype();
        let mut other = Self::with_values(device, run, form, dtype, &self.values()?)?;
        for i in 0..self.parameters.len() {
            let Some(kept) = self.optimizer.state(i) else { continue };
            let Some(made) = other.optimizer.make_state(i, kept.steps.unwrap_or(0))? else { continue };
            for ((_, from), (_, to)) in kept.tensors.iter().zip(&made.tensors) {
                to.write_bytes(&from.to_bytes()?)?;
            }
        }
        Ok(other)
    }
}

fn clips(
    device: &memcore::Device,
    clip: &Clip,
    implementation: Implementation,
    dtype: DType,
) -> Result<Result<(), String>> {
    let parameters = parameters(device, dtype, &recording().parameters)?;
    set_gradients(&parameters, &recording().gradients[0])?;
    if let Some(want) = clip.norm {
        let norm = clip_grad_norm_with(&parameters, clip.bound, implementation)?;
        let got = norm.map_or(Ok(Vec::new()), |norm| norm.to_f64())?;
        if let Err(problem) = near(dtype, &[vec![want]], &[got]) {
            return Ok(Err(format!("the norm: {problem}")));
        }
    } else {
        clip_grad_value(&parameters, clip.bound)?;
    }
    let got = parameters.iter().filter_map(Parameter::grad).map(|grad| grad.to_f64()).collect::<Result<Values>>()?;
    Ok(near(dtype, &clip.gradients, &got))
}

/// Creates parameters of the recorded shapes.
fn parameters(device: &memcore::Device, dtype: DType, values: &Values) -> Result<Vec<Parameter>> {
    let shapes = recording().shapes.iter().zip(values);
    shapes.map(|(dims, values)| Ok(Parameter::new("p", array(device, dims, dtype, values)?))).collect()
}

/// Creates an array of these values, in float64 or rounded to float32.
fn array(device: &memcore::Device, dims: &[usize], dtype: DType, values: &[f64]) -> Result<Array> {
    let array = Array::empty(device, dims, dtype)?;
    match dtype {
        DType::F64 => array.write(values)?,
        _ => write_f32(&array, &values.iter().map(|&x| x as f32).collect::<Vec<f32>>())?,
    }
    Ok(array)
}

fn set_gradients(parameters: &[Parameter], gradients: &[Option<Vec<f64>>]) -> Result<()> {
    for (p, gradient) in parameters.iter().zip(gradients) {
        let p_array = p.array();
        let make = |values: &Vec<f64>| array(p_array.device(), p_array.dims(), p_array.dtype(), values);
        p.tensor().set_grad(gradient.as_ref().map(make).transpose()?);
    }
    Ok(())
}

/// Checks that all values are near PyTorch's; the error names the first that is not.
fn near(dtype: DType, want: &[Vec<f64>], got: &[Vec<f64>]) -> Result<(), String> {
    let sizes = |values: &[Vec<f64>]| values.iter().map(Vec::len).collect::<Vec<usize>>();
    if sizes(want) != sizes(got) {
        return Err(format!("{:?} values instead of {:?}", sizes(got), sizes(want)));
    }
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        for (j, (want, got)) in want.iter().zip(got).enumerate() {
            let allowed = EPSILONS * epsilon(dtype) * want.abs().max(1.0);
            // NaN is not near any value.
            let near = (got - want).abs() <= allowed;
            if !near {
                return Err(format!("element {j} of {i}: {got} instead of {want}, more than {allowed:.1e} off"));
            }
        }
    }
    Ok(())
}
