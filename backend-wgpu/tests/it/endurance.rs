//! Ten thousand steps of a small network: neither the process nor the device may hold more at the end than after the first thousand. It takes
//! a minute on a software adapter, so it runs by `cargo test -p backend-wgpu --test it -- --ignored`, and in `cargo xtask test --full`.

use std::sync::Arc;

use backend_wgpu::Wgpu;
use lab::models::{ModelOptions, architecture};
use lab::training::{Source, Trainer};
use memcore::Device;
use memcore::backend::Backend;

use crate::runs;

const STEPS: usize = 1_000;
/// Number of runs. The first one fills caches: of blocks, of bind groups, of the driver.
const RUNS: usize = 10;
/// Bytes by which the process may grow after that: 15 bytes for each of some thirty dispatches in a step.
const SLACK_BYTES: u64 = 4 << 20;

/// Resident bytes of this process; `None` on a system without `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[test]
#[ignore = "takes long: ten thousand steps"]
fn ten_thousand_steps_leak_nothing() {
    let Some(backend) = conformance::or_skip("wgpu", Wgpu::open(0)).map(Arc::new) else { return };
    let options = ModelOptions { layers: Some(3), width: Some(24), features: Some(16), ..ModelOptions::default() };
    let architecture = architecture("mlp", &options).unwrap();
    let settings = runs::settings("mlp", &options, None, STEPS).unwrap();
    let device = Device::builder(backend.clone() as Arc<dyn Backend>).build();
    // A trainer keeps a row of figures for each step, which is not a leak. So there is a new trainer for each run, on
    // one device.
    let run = || {
        let mut trainer =
            Trainer::build(&*architecture, &device, &settings, Source::Synthetic { seed: 5 }, "").unwrap();
        for step in 0..STEPS {
            trainer.step(step).unwrap();
        }
        trainer.finish(None);
        let (stats, driver) = (device.stats(), backend.statistics());
        let (allocated, reserved) = (stats.allocated_bytes.all, stats.reserved_bytes.all);
        ([allocated.current, allocated.peak, reserved.current], driver.pipelines, driver.reserved_bytes)
    };
    let first = (run(), resident_bytes());
    for _ in 1..RUNS {
        assert_eq!(run(), first.0, "allocated, peak, reserved; kernels; the layer below");
    }
    if let (Some(before), Some(after)) = (first.1, resident_bytes()) {
        println!("resident: {before} bytes after {STEPS} steps, {after} after {}; device: {:?}", RUNS * STEPS, first.0);
        assert!(after <= before + SLACK_BYTES, "the process grew from {before} to {after} bytes");
    }
}
