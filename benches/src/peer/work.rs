//! The networks and kernels of the comparison.

use std::sync::Arc;

use anyhow::{Result, bail};
use backend_cpu::Cpu;
use lab::bench::training::{self, Workload};
use lab::bench::uniform;
use memcore::backend::kernel::{BinaryOp, UnaryOp};
use memcore::{Array, Device};
use serde_json::{Value, json};

use crate::measure::{Limits, measure};

/// Every workload that the others have too.
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

/// Runs one workload and gives its JSON line.
pub(crate) fn run(name: &str, limits: &Limits) -> Result<Value> {
    let cpu = Cpu::new()?;
    let threads = cpu.threads();
    let device = Device::builder(Arc::new(cpu)).build();
    if let Some(workload) = training::named(name) {
        return train(&device, threads, limits, workload);
    }
    match name.strip_prefix("gemm-").and_then(|n| n.parse().ok()) {
        Some(n) => gemm(&device, threads, limits, n),
        None if name == "elementwise" => elementwise(&device, threads, limits),
        None => bail!("unknown workload {name}; known: {}", NAMES.join(", ")),
    }
}

fn train(device: &Device, threads: usize, limits: &Limits, workload: &Workload) -> Result<Value> {
    let mut training = workload.prepare(device)?;
    let run = measure(limits, || Ok(training.step()?))?;
    // The others say the batch apart.
    let name = workload.name.split_once("-b").map_or(workload.name, |(name, _)| name);
    Ok(run.line(name, Some(workload.batch), threads, device.stats().reserved_bytes.all.peak))
}

fn gemm(device: &Device, threads: usize, limits: &Limits, n: usize) -> Result<Value> {
    let a = Array::from_slice(device, &[n, n], &uniform(1, n * n, 1.0))?;
    let b = Array::from_slice(device, &[n, n], &uniform(2, n * n, 1.0))?;
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
    let a = Array::from_slice(device, &[n], &uniform(1, n, 1.0))?;
    let b = Array::from_slice(device, &[n], &uniform(2, n, 1.0))?;
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
