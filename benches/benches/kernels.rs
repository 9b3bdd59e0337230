//! Every kernel on every device, from sizes where the launch dominates to sizes where memory or arithmetic does.
//!
//! `cargo bench -p benches --bench kernels [-- --backend cpu]`. `elem/s` counts floating-point operations, `B/s` bytes
//! moved, each the least that the call needs. The line below compares that with the device's own roofs.

use std::cell::{OnceCell, RefCell};
use std::process::ExitCode;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use lab::bench::kernels::{self, Kernel, Size, label};
use lab::bench::{Demand, Limits, Roofline, Work};
use memcore::DType;
use serde_json::json;

mod common;
use common::Found;

/// Seconds for measuring the roofs of a device.
const ROOF_SECONDS: f64 = 6.0;
/// Maximum operations of a call on a processor: a larger call takes seconds, and criterion repeats it dozens of times.
const MAX_FLOPS_OF_A_PROCESSOR: u64 = 1 << 35;
/// Types for which a matrix product is a roof.
const ROOF_TYPES: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

fn kernels(c: &mut Criterion) {
    for found in common::devices() {
        let mut group = c.benchmark_group(format!("kernels/{}", found.name));
        let roofs = OnceCell::new();
        for kernel in kernels::all() {
            let points: Vec<(DType, Size)> = kernel.points().collect();
            for (dtype, size) in common::sizes(&points) {
                match kernel.refused_by(&*found.backend, *dtype, size) {
                    Some(reason) => println!("{}/{}: skipped: {reason}", found.name, kernel.name),
                    None => one(&mut group, &found, &roofs, kernel, (*dtype, size)),
                }
            }
        }
        group.finish();
    }
}

fn one(
    group: &mut BenchmarkGroup<'_, WallTime>,
    found: &Found,
    roofs: &OnceCell<Roofline>,
    kernel: &Kernel,
    (dtype, size): (DType, &[usize]),
) {
    // Summed over all operands, so that it is known before they exist.
    let demand = kernel.demand(dtype, size).expect("a call that was understood");
    let Demand { bytes, flops, .. } = demand;
    if found.is_processor && flops > MAX_FLOPS_OF_A_PROCESSOR {
        println!("{}/{}/{}/{}: skipped: for GPUs only", found.name, kernel.name, dtype.name(), label(size));
        return;
    }
    group.throughput(match flops {
        0 => Throughput::BytesDecimal(bytes),
        flops => Throughput::ElementsAndBytes { elements: flops, bytes },
    });
    let id = BenchmarkId::new(format!("{}/{}/{}", kernel.family, kernel.name, dtype.name()), label(size));
    let mut work: Option<Work> = None;
    let samples: RefCell<Vec<f64>> = RefCell::default();
    group.bench_function(id, |b| {
        let work = work.get_or_insert_with(|| {
            let device = found.device();
            kernel.prepare(&device, dtype, size).expect("a kernel that the device has")
        });
        b.iter_custom(|runs| {
            let taken = work.run(runs).expect("a kernel that runs");
            samples.borrow_mut().push(taken.as_nanos() as f64 / runs as f64);
            taken
        });
    });
    if !samples.borrow().is_empty() && !common::is_test() {
        let roofs = roofs.get_or_init(|| measured_roofs(found));
        say(roofs, demand, dtype, &samples.borrow());
    }
}

/// Prints how near the last samples come to the roofs; the earlier samples are the warm-up.
fn say(roofs: &Roofline, demand: Demand, dtype: DType, samples: &[f64]) {
    let mut last: Vec<f64> = samples.iter().rev().take(10).copied().collect();
    last.sort_by(f64::total_cmp);
    let ns = last[last.len() / 2];
    let Some((_, arithmetic)) = roofs.least_ns(demand, dtype) else { return };
    let Some(part) = roofs.fraction(demand, dtype, ns) else { return };
    let which = if arithmetic { "the product" } else { "the copy" };
    println!("{:24}roof:   {:.0} % of {which}", "", 100.0 * part);
}

/// Measures the roofs, and writes them to the folder from which results are collected.
fn measured_roofs(found: &Found) -> Roofline {
    let limits = Limits { seconds: ROOF_SECONDS, stop: &|| false };
    let roofs = Roofline::measure(&found.device(), &ROOF_TYPES, &limits).expect("a copy and a product");
    let products: Vec<String> =
        roofs.gemm_flops_per_s.iter().map(|(dtype, rate)| format!("{dtype} {:.1} GFLOP/s", rate / 1e9)).collect();
    println!("{}: copy {:.1} GB/s, product {}", found.name, roofs.copy_bytes_per_s / 1e9, products.join(", "));
    let gemm: serde_json::Map<String, serde_json::Value> =
        roofs.gemm_flops_per_s.iter().map(|(dtype, rate)| (dtype.name().into(), json!(rate / 1e9))).collect();
    let name = found.backend.device_name();
    let json = json!({ "device": found.name, "name": name, "copy_gb_per_s": roofs.copy_bytes_per_s / 1e9, "gemm_gflop_per_s": gemm });
    common::leave(&format!("roofs-{}", found.name), &json);
    roofs
}

/// Measures launches alone, on a kernel that takes no longer than its launch.
fn launches(c: &mut Criterion) {
    for found in common::devices() {
        let mut group = c.benchmark_group(format!("launch/{}", found.name));
        let add = kernels::named("binary_add").expect("a kernel");
        let mut work: Option<Work> = None;
        // One after another, each waited for: the least cost of reading a loss.
        group.bench_function("and wait", |b| {
            let work = work.get_or_insert_with(|| add.prepare(&found.device(), DType::F32, &[32]).expect("it fits"));
            b.iter_custom(|runs| (0..runs).map(|_| work.run(1).expect("it runs")).sum::<Duration>());
        });
        group.finish();
    }
}

fn main() -> ExitCode {
    common::main(&[kernels, launches])
}
