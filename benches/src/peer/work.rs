//! The networks and kernels of the comparison.

use anyhow::{Result, bail};
use lab::bench::training::{self, Workload};
use lab::bench::uniform;
use memcore::Array;
use memcore::backend::kernel::{BinaryOp, UnaryOp};
use serde_json::{Value, json};

use crate::device::{Chosen, Opened};
use crate::measure::{Limits, measure};

/// Every workload, all of which the other programs have too.
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

/// Runs one workload and returns its JSON line.
pub(crate) fn run(name: &str, chosen: Chosen, limits: &Limits) -> Result<Value> {
    let opened = &chosen.open()?;
    if let Some(workload) = training::named(name) {
        return train(opened, limits, workload);
    }
    match name.strip_prefix("gemm-").and_then(|n| n.parse().ok()) {
        Some(n) => gemm(opened, limits, n),
        None if name == "elementwise" => elementwise(opened, limits),
        None => bail!("unknown workload {name}; known: {}", NAMES.join(", ")),
    }
}

fn train(opened: &Opened, limits: &Limits, workload: &Workload) -> Result<Value> {
    let mut training = workload.prepare(&opened.device)?;
    let run = measure(limits, || Ok(training.step()?))?;
    // The other programs give the batch in a field of its own.
    let name = workload.name.split_once("-b").map_or(workload.name, |(name, _)| name);
    Ok(run.line(name, Some(workload.batch), opened))
}

fn gemm(opened: &Opened, limits: &Limits, n: usize) -> Result<Value> {
    let device = &opened.device;
    let a = Array::from_slice(device, &[n, n], &uniform(1, n * n, 1.0))?;
    let b = Array::from_slice(device, &[n, n], &uniform(2, n * n, 1.0))?;
    let run = measure(limits, || {
        a.matmul(&b)?;
        device.synchronize()?;
        Ok(None)
    })?;
    let mut line = run.line(&format!("gemm-{n}"), None, opened);
    line["gflops"] = json!(2.0 * (n as f64).powi(3) / (run.median() * 1e6));
    Ok(line)
}

fn elementwise(opened: &Opened, limits: &Limits) -> Result<Value> {
    let device = &opened.device;
    let n = 16 << 20;
    let a = Array::from_slice(device, &[n], &uniform(1, n, 1.0))?;
    let b = Array::from_slice(device, &[n], &uniform(2, n, 1.0))?;
    let run = measure(limits, || {
        let sum = a.binary(BinaryOp::ADD, &b)?;
        // In the memory of the sum, as burn does if nothing else holds it.
        sum.unary_(UnaryOp::Relu)?;
        device.synchronize()?;
        Ok(None)
    })?;
    let mut line = run.line("elementwise", None, opened);
    line["gbps"] = json!(12.0 * n as f64 / (run.median() * 1e6));
    Ok(line)
}
