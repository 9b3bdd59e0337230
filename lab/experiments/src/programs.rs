//! Small programs of the articles that no training loop represents: they keep tensors on purpose.

use lab_base::error::Result;
use lab_training::record::Row;
use memcore::backend::kernel::Reduction;
use memcore::memory::Category;
use memcore::nn::{Init, Linear, Module};
use memcore::optim::{Optimizer, Sgd, SgdOptions};
use memcore::{Array, DType, Device, Tensor, ops};

/// The second article's leak: `Linear(10, 20) → ReLU → Linear(20, 1)`, whose hidden activations are appended to a
/// list.
#[derive(Clone, Copy, Debug)]
pub struct KeptActivations {
    /// Training steps.
    pub steps: usize,
    /// Examples per step.
    pub batch: usize,
    /// True if the list is cleared after each step.
    pub clear: bool,
    /// Seed of the parameters and of the data.
    pub seed: u64,
}

/// Runs the program. Returns one row per phase, and none for the end.
pub fn kept_activations(device: &Device, program: &KeptActivations) -> Result<Vec<Row>> {
    kept_activations_watched(device, program, &mut |_| true)
}

/// As [`kept_activations`]. Calls `watch` after each step, while everything is still held; `false` ends the program.
pub(super) fn kept_activations_watched(
    device: &Device,
    program: &KeptActivations,
    watch: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<Row>> {
    let init = Init::new(device, DType::F32, program.seed);
    let hidden = Linear::new(&init.at("l1"), 10, 20, true)?;
    let output = Linear::new(&init.at("l2"), 20, 1, true)?;
    let mut optimizer = Sgd::new(init.parameters(), SgdOptions { lr: 0.01, ..SgdOptions::default() })?;
    drop(init);
    let mut kept: Vec<Tensor> = Vec::new();
    let mut rows = vec![Row::take(device, "model")];
    // Like Python's variables: each keeps its value until the next step binds it anew.
    let (mut x, mut y, mut h, mut out, mut loss) = (None, None, None, None, None);
    for step in 0..program.steps {
        let mut row = |phase: &str| rows.push(Row::take(device, format!("s{step}.{phase}")));
        let input = x.insert(random(device, &[program.batch, 10])?);
        let target = y.insert(random(device, &[program.batch, 1])?);
        row("input");
        optimizer.zero_grad(true)?;
        row("zero_grad");
        let before = hidden.forward(input)?;
        let activated = ops::relu(&before)?;
        drop(before);
        let h = h.insert(activated);
        kept.push(h.clone());
        let result = out.insert(output.forward(h)?);
        row("forward");
        let loss = loss.insert(ops::mse_loss(result, target, Reduction::Mean)?);
        row("loss");
        loss.backward(false)?;
        row("backward");
        optimizer.step()?;
        row("step");
        if program.clear {
            kept.clear();
            row("clear");
        }
        if !watch(step) {
            break;
        }
    }
    // A Python function drops its variables in the order of their first assignment, and a list from its end.
    drop((hidden, output));
    drop(optimizer);
    while kept.pop().is_some() {}
    drop(x);
    drop(y);
    drop(h);
    drop(out);
    drop(loss);
    Ok(rows)
}

fn random(device: &Device, dims: &[usize]) -> Result<Tensor> {
    let array = Array::empty_as(device, dims, DType::F32, Category::Input)?;
    array.uniform_(-1.0, 1.0)?;
    Ok(Tensor::from_array(array))
}
