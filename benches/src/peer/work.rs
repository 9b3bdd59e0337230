//! The networks and kernels of the comparison.

use anyhow::{Result, bail};
use lab::bench::training::{self, Workload};
use lab::bench::uniform;
use lab::training::Precision;
use memcore::backend::kernel::{BinaryOp, UnaryOp};
use memcore::{Array, DType};
use serde_json::{Value, json};

use crate::device::Opened;
use crate::measure::{Limits, measure};

/// Every workload that the others have too.
pub(crate) const NAMES: [&str; 11] = [
    "mlp",
    "simplecnn-b32",
    "simplecnn-b128",
    "smallcnn64",
    "gpt-mini",
    "resnet18-b8",
    "gemm-256",
    "gemm-512",
    "gemm-1024",
    "gemm-2048",
    "elementwise",
];

/// Runs one workload and gives its JSON line.
pub(crate) fn run(name: &str, opened: &Opened, precision: Precision, limits: &Limits) -> Result<Value> {
    if let Some(workload) = training::named(name) {
        return train(opened, limits, workload, precision);
    }
    match name.strip_prefix("gemm-").and_then(|n| n.parse().ok()) {
        Some(n) => gemm(opened, limits, n, precision),
        None if name == "elementwise" && precision == Precision::Fp32 => elementwise(opened, limits),
        None if name == "elementwise" => bail!("elementwise is measured in float32 alone"),
        None => bail!("unknown workload {name}; known: {}", NAMES.join(", ")),
    }
}

fn train(opened: &Opened, limits: &Limits, workload: &Workload, precision: Precision) -> Result<Value> {
    let mut training = workload.prepare_in(&opened.device, precision)?;
    let run = measure(limits, || Ok(training.step()?))?;
    // The other programs give the batch in a field of its own.
    let name = workload.name.split_once("-b").map_or(workload.name, |(name, _)| name);
    let mut line = run.line(name, Some(workload.batch), opened);
    line["dtype"] = json!(dtype(precision));
    Ok(line)
}

/// As the other programs call it.
fn dtype(precision: Precision) -> String {
    match precision {
        Precision::Fp32 => "f32".to_string(),
        other => other.name().to_string(),
    }
}

fn gemm(opened: &Opened, limits: &Limits, n: usize, precision: Precision) -> Result<Value> {
    let device = &opened.device;
    let factor = |stream| -> Result<Array> {
        let values = Array::from_slice(device, &[n, n], &uniform(stream, n * n, 1.0))?;
        Ok(if precision.dtype() == DType::F32 { values } else { values.cast(precision.dtype())? })
    };
    let (a, b) = (factor(1)?, factor(2)?);
    let run = measure(limits, || {
        a.matmul(&b)?;
        device.synchronize()?;
        Ok(None)
    })?;
    let mut line = run.line(&format!("gemm-{n}"), None, opened);
    line["dtype"] = json!(dtype(precision));
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
