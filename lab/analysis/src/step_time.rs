//! How long a step takes on a card, estimated from the launches of a dry run.
//!
//! Each kernel takes as long as its bytes need at the card's bandwidth, or as long as its operations need at its speed for their type, whichever is longer, and at
//! least as long as a launch. The card's data sheet gives both speeds, of which programs reach a part.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lab_base::speeds::DataSheet;
use memcore::DType;
use memcore::backend::{Cost, KernelCall};
use memcore::device::Meter;

/// The share of a data sheet's bandwidth that kernels reach: copies of 64 MiB reach 0.76 of it on an H200, and 0.81 through PyTorch
/// (benches/results/2026-11-27-h200-kernels-beside-torch.json).
const REACHED_BANDWIDTH: f64 = 0.8;

/// The share of a data sheet's arithmetic that products in a training reach.
const REACHED_ARITHMETIC: f64 = 0.6;

/// Seconds that a kernel takes at least: PyTorch's host needs as long to launch the next one. With it the MLP of benches/results/2026-11-27-h200-steps.json
/// takes 1.16 ms (1.01 at least, 1.38 in the median), gpt-mini 5.2 (5.4, 7.4), and ResNet-18 5.8 (7.5, 10.0).
const LAUNCH_S: f64 = 27e-6;

/// The lowest compute capability whose tensor cores multiply bfloat16.
const BF16_SM: u32 = 80;

/// How fast a card does a training's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    bytes_per_s: f64,
    f32_per_s: f64,
    f16_per_s: f64,
    bf16_per_s: f64,
}

impl Speed {
    /// The speed of a card with this data sheet and compute capability, times ten.
    pub fn from_data_sheet(sheet: &DataSheet, sm: u32) -> Self {
        let [f32_per_s, f16_per_s] = [sheet.f32_tflops, sheet.f16_tflops].map(|rate| rate * 1e12 * REACHED_ARITHMETIC);
        let bf16_per_s = if sm < BF16_SM { f32_per_s } else { f16_per_s };
        Self { bytes_per_s: sheet.gb_per_s * 1e9 * REACHED_BANDWIDTH, f32_per_s, f16_per_s, bf16_per_s }
    }

    /// Seconds of one kernel.
    fn kernel_s(&self, dtype: DType, cost: &Cost) -> f64 {
        let rate = match dtype {
            DType::F16 => self.f16_per_s,
            DType::BF16 => self.bf16_per_s,
            _ => self.f32_per_s,
        };
        let memory = (cost.bytes_read + cost.bytes_written) as f64 / self.bytes_per_s;
        memory.max(cost.flops as f64 / rate).max(LAUNCH_S)
    }
}

/// Adds up the time of a device's launches.
pub struct StepClock {
    speed: Speed,
    picoseconds: AtomicU64,
}

impl StepClock {
    /// Starts at zero.
    pub fn new(speed: Speed) -> Arc<Self> {
        Arc::new(Self { speed, picoseconds: AtomicU64::new(0) })
    }

    /// Estimated seconds of all launches so far.
    pub fn seconds(&self) -> f64 {
        self.picoseconds.load(Relaxed) as f64 * 1e-12
    }
}

impl Meter for StepClock {
    fn launched(&self, call: &KernelCall, cost: &Cost) {
        // Whole picoseconds: their sum does not depend on the order of threads.
        let picoseconds = self.speed.kernel_s(call.dtype(), cost) * 1e12;
        self.picoseconds.fetch_add(picoseconds as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_memory_and_arithmetic_counts() {
        let sheet = DataSheet { gb_per_s: 1000.0, f32_tflops: 10.0, f16_tflops: 100.0 };
        let speed = Speed::from_data_sheet(&sheet, 80);
        let cost = |bytes, flops| Cost { bytes_read: bytes, bytes_written: 0, flops };
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
        near(speed.kernel_s(DType::F32, &cost(8_000_000_000, 1)), 0.01);
        near(speed.kernel_s(DType::F32, &cost(1, 60_000_000_000)), 0.01);
        near(speed.kernel_s(DType::BF16, &cost(1, 600_000_000_000)), 0.01);
        near(Speed::from_data_sheet(&sheet, 75).kernel_s(DType::BF16, &cost(1, 60_000_000_000)), 0.01);
        near(speed.kernel_s(DType::F32, &cost(1, 1)), LAUNCH_S);
    }
}
