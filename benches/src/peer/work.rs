//! The networks and kernels of the comparison.

use std::sync::Arc;

use anyhow::{Result, bail};
use backend_cpu::Cpu;
use lab::models::{Loss, Model, ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, loss};
use memcore::backend::kernel::{BinaryOp, UnaryOp};
use memcore::optim::Implementation;
use memcore::{Array, DType, Device, Tensor};
use serde_json::{Value, json};

use crate::data::{self, INPUTS, TARGETS};
use crate::measure::{Limits, measure};

/// Every workload.
pub(crate) const NAMES: [&str; 10] = [
    "mlp",
    "simplecnn-b32",
    "simplecnn-b128",
    "smallcnn64",
    "gpt-mini",
    "gemm-256",
    "gemm-512",
    "gemm-1024",
    "gemm-2048",
    "elementwise",
];

/// A training workload: a network of the laboratory and how it is trained.
struct Training {
    name: &'static str,
    model: &'static str,
    options: ModelOptions,
    batch: usize,
    optimizer: OptimizerSettings,
}

/// Runs one workload and gives its JSON line.
pub(crate) fn run(name: &str, limits: &Limits) -> Result<Value> {
    let cpu = Cpu::new()?;
    let threads = cpu.threads();
    let device = Device::builder(Arc::new(cpu)).build();
    let options = ModelOptions::default();
    let adam = OptimizerSettings {
        implementation: Implementation::Fused,
        ..OptimizerSettings::new(OptimizerKind::Adam, 1e-3)
    };
    let training = |name, model, options, batch, optimizer| {
        train(&device, threads, limits, Training { name, model, options, batch, optimizer })
    };
    match name {
        "mlp" => {
            let options = ModelOptions { layers: Some(4), width: Some(1024), features: Some(784), ..options };
            training("mlp", "mlp", options, 128, adam)
        }
        "simplecnn-b32" => training("simplecnn", "simple-cnn", options, 32, adam),
        "simplecnn-b128" => training("simplecnn", "simple-cnn", options, 128, adam),
        "smallcnn64" => {
            let sgd = OptimizerSettings {
                implementation: Implementation::Fused,
                ..OptimizerSettings::new(OptimizerKind::Sgd, 0.01)
            };
            training("smallcnn64", "larger-conv", options, 4, sgd)
        }
        "gpt-mini" => {
            let (layers, width, heads) = (Some(4), Some(256), Some(4));
            let options = ModelOptions { layers, width, heads, sequence: Some(128), vocabulary: Some(1000), ..options };
            let adamw = OptimizerSettings { kind: OptimizerKind::AdamW, weight_decay: Some(0.01), ..adam };
            training("gpt-mini", "gpt", options, 8, adamw)
        }
        "elementwise" => elementwise(&device, threads, limits),
        _ => match name.strip_prefix("gemm-").and_then(|n| n.parse().ok()) {
            Some(n) => gemm(&device, threads, limits, n),
            None => bail!("unknown workload {name}; known: {}", NAMES.join(", ")),
        },
    }
}

fn train(device: &Device, threads: usize, limits: &Limits, work: Training) -> Result<Value> {
    let architecture = architecture(work.model, &work.options)?;
    let model = Model::build(&*architecture, device, DType::F32, 0)?;
    set_parameters(&model)?;
    let mut optimizer = work.optimizer.build(model.parameters.clone())?;
    let (x, y) = batch(device, &model, work.batch)?;
    let run = measure(limits, || {
        optimizer.zero_grad(true)?;
        let output = model.module.forward(&x)?;
        let loss = loss(&model.task.loss, &output, &y)?;
        drop(output);
        loss.backward(false)?;
        optimizer.step()?;
        device.synchronize()?;
        Ok(Some(loss.item()?))
    })?;
    Ok(run.line(work.name, Some(work.batch), threads, device.stats().reserved_bytes.all.peak))
}

/// Fills the parameters with the peers' values: each takes the next stream, within 1/√fan-in; tables within 0.035; normalisations keep 1 and 0 and
/// take no stream.
fn set_parameters(model: &Model) -> Result<()> {
    let (mut stream, mut fan_in) = (0, 1);
    for parameter in &model.parameters {
        let path = parameter.path();
        if path.split('.').any(|part| part.starts_with("ln")) {
            continue;
        }
        let dims = parameter.array().dims();
        if dims.len() > 1 {
            fan_in = dims[1..].iter().product();
        }
        let table = path.starts_with("tok.") || path.starts_with("pos.");
        let bound = if table { 0.035 } else { (1.0 / (fan_in as f64).sqrt()) as f32 };
        parameter.set(&data::uniform(stream, parameter.array().numel(), bound))?;
        stream += 1;
    }
    Ok(())
}

fn batch(device: &Device, model: &Model, batch: usize) -> Result<(Tensor, Tensor)> {
    use lab::models::Input;
    let (x, rows) = match &model.task.input {
        Input::Values(dims) => {
            let dims: Vec<usize> = std::iter::once(batch).chain(dims.iter().copied()).collect();
            (Tensor::from_slice(device, &dims, &data::uniform(INPUTS, dims.iter().product(), 1.0))?, vec![batch])
        }
        Input::Tokens { length, vocabulary } => {
            let tokens = data::labels(INPUTS, batch * length, *vocabulary as u64);
            (Tensor::from_slice(device, &[batch, *length], &tokens)?, vec![batch, *length])
        }
    };
    let y = match &model.task.loss {
        Loss::CrossEntropy { classes } | Loss::Reversal { classes } => {
            let n = rows.iter().product();
            Tensor::from_slice(device, &rows, &data::labels(TARGETS, n, *classes as u64))?
        }
        Loss::MeanSquaredError { dims } => {
            let dims: Vec<usize> = std::iter::once(batch).chain(dims.iter().copied()).collect();
            Tensor::from_array(Array::zeros(device, &dims, DType::F32)?)
        }
    };
    Ok((x, y))
}

fn gemm(device: &Device, threads: usize, limits: &Limits, n: usize) -> Result<Value> {
    let a = Array::from_slice(device, &[n, n], &data::uniform(1, n * n, 1.0))?;
    let b = Array::from_slice(device, &[n, n], &data::uniform(2, n * n, 1.0))?;
    let run = measure(limits, || {
        a.matmul(&b)?;
        device.synchronize()?;
        Ok(None)
    })?;
    let mut line = run.line(&format!("gemm-{n}"), None, threads, device.stats().reserved_bytes.all.peak);
    line["gflops"] = json!(2.0 * (n as f64).powi(3) / (run.median() * 1e6));
    Ok(line)
}

fn elementwise(device: &Device, threads: usize, limits: &Limits) -> Result<Value> {
    let n = 16 << 20;
    let a = Array::from_slice(device, &[n], &data::uniform(1, n, 1.0))?;
    let b = Array::from_slice(device, &[n], &data::uniform(2, n, 1.0))?;
    let run = measure(limits, || {
        let sum = a.binary(BinaryOp::ADD, &b)?;
        sum.unary(UnaryOp::Relu)?;
        device.synchronize()?;
        Ok(None)
    })?;
    let mut line = run.line("elementwise", None, threads, device.stats().reserved_bytes.all.peak);
    line["gbps"] = json!(12.0 * n as f64 / (run.median() * 1e6));
    Ok(line)
}
