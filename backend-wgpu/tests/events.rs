//! Training on an adapter: what core's memory sees of it is what it sees on every device, and the losses are the CPU's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backend_cpu::Cpu;
use backend_wgpu::Wgpu;
use lab::models::{ALL, Architecture, ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::backend::{Backend, DeviceProfile, Meta};
use memcore::memory::Event;
use memcore::{Device, Profile};

/// Tests of one process share the adapter's device: what one of them asks of the driver, another would count.
static ALONE: Mutex<()> = Mutex::new(());

/// The first adapter, for this test alone.
fn adapter() -> Option<(Arc<Wgpu>, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    conformance::or_skip("wgpu", Wgpu::open(0)).map(|backend| (Arc::new(backend), alone))
}

fn settings(architecture: &dyn Architecture, steps: usize) -> RunSettings {
    let defaults = architecture.defaults();
    let kind = OptimizerKind::parse(defaults.optimizer).unwrap();
    RunSettings { seed: 3, ..RunSettings::new(2, steps, OptimizerSettings::new(kind, defaults.lr)) }
}

/// The events and the losses of a run.
fn run(architecture: &dyn Architecture, settings: &RunSettings, backend: Arc<dyn Backend>) -> (Vec<Event>, Vec<f64>) {
    let device = Device::builder(backend).profile(Profile::torch_2_11(90)).history(true).build();
    let mut trainer = Trainer::new(architecture, &device, settings, Source::Synthetic { seed: 5 }, "").unwrap();
    let losses = (0..settings.steps).filter_map(|step| trainer.step(step).unwrap()).collect();
    trainer.finish(Some("end"));
    (device.with_ledger(|ledger| ledger.history().to_vec()), losses)
}

fn same_events(name: &str, mine: &[Event], theirs: &[Event]) {
    for (i, (x, y)) in mine.iter().zip(theirs).enumerate() {
        assert_eq!(x, y, "{name}: event {i}");
    }
    assert_eq!(mine.len(), theirs.len(), "{name}");
}

#[test]
fn every_network_has_the_events_of_the_other_devices() {
    let Some((backend, _alone)) = adapter() else { return };
    // Four GiB stand for a device that is never full.
    let meta = || Meta::new(DeviceProfile { total_bytes: 4 << 30, ..DeviceProfile::default() });
    for (name, _) in ALL {
        let fused = ModelOptions { fused_attention: true, ..ModelOptions::small(name) };
        let forms =
            if *name == "gpt" { vec![ModelOptions::small(name), fused] } else { vec![ModelOptions::small(name)] };
        for options in forms {
            let architecture = architecture(name, &options).unwrap();
            let settings = settings(&*architecture, 2);
            let (mine, _) = run(&*architecture, &settings, backend.clone());
            let (theirs, _) = run(&*architecture, &settings, Arc::new(meta()));
            same_events(name, &mine, &theirs);
            let (theirs, _) = run(&*architecture, &settings, Arc::new(Cpu::new().unwrap()));
            same_events(name, &mine, &theirs);
        }
    }
}

#[test]
fn twenty_steps_have_the_losses_of_the_cpu() {
    let Some((backend, _alone)) = adapter() else { return };
    for name in ["mlp", "gpt"] {
        let options = match name {
            "mlp" => ModelOptions { layers: Some(3), width: Some(24), features: Some(16), ..ModelOptions::default() },
            _ => ModelOptions::small(name),
        };
        let architecture = architecture(name, &options).unwrap();
        let settings = settings(&*architecture, 20);
        let (_, mine) = run(&*architecture, &settings, backend.clone());
        let (_, theirs) = run(&*architecture, &settings, Arc::new(Cpu::new().unwrap()));
        assert_eq!(mine.len(), 20);
        for (step, (x, y)) in mine.iter().zip(&theirs).enumerate() {
            // Twenty steps let the last bits of f32 grow, not more.
            assert!((x - y).abs() <= 1e-4 * y.abs().max(1.0), "{name}: loss {x} at step {step}, the CPU has {y}");
        }
    }
}

#[test]
fn steps_leave_nothing_behind_and_submit_little() {
    let Some((backend, _alone)) = adapter() else { return };
    let options = ModelOptions { layers: Some(3), width: Some(24), features: Some(16), ..ModelOptions::default() };
    let architecture = architecture("mlp", &options).unwrap();
    let settings = settings(&*architecture, 200);
    let device = Device::builder(backend.clone() as Arc<dyn Backend>).build();
    let mut trainer = Trainer::new(&*architecture, &device, &settings, Source::Synthetic { seed: 5 }, "").unwrap();
    for step in 0..20 {
        trainer.step(step).unwrap();
    }
    let before = backend.statistics();
    for step in 20..settings.steps {
        trainer.step(step).unwrap();
    }
    let after = backend.statistics();
    assert_eq!(after.pipelines, before.pipelines, "a kernel was compiled again");
    assert_eq!(after.reserved_bytes, before.reserved_bytes);
    let per_step = (after.submissions - before.submissions) as f64 / (settings.steps - 20) as f64;
    assert!(per_step <= 4.0, "{per_step} submissions a step");
}
