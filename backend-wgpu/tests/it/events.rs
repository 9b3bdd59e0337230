//! Training on an adapter: core records the same memory events as on every other device, and the losses are the CPU's.

use std::sync::{Arc, MutexGuard};

use backend_cpu::Cpu;
use backend_wgpu::Wgpu;
use lab::models::{ALL, ModelOptions, architecture};
use lab::training::{Source, Trainer};
use memcore::backend::{Backend, DeviceProfile, Meta};
use memcore::{Device, Profile};

use crate::{alone, runs};

/// The first adapter, for this test alone.
fn adapter() -> Option<(Arc<Wgpu>, MutexGuard<'static, ()>)> {
    let alone = alone();
    conformance::or_skip("wgpu", Wgpu::open(0)).map(|backend| (Arc::new(backend), alone))
}

fn device(backend: Arc<dyn Backend>) -> Device {
    runs::device(backend, Profile::torch_2_11(90))
}

#[test]
fn every_network_has_the_events_of_the_other_devices() {
    let Some((backend, _alone)) = adapter() else { return };
    // A device of four GiB is never full here.
    let meta = || Meta::new(DeviceProfile { total_bytes: 4 << 30, ..DeviceProfile::default() });
    for (name, _) in ALL {
        let fused = ModelOptions { fused_attention: true, ..ModelOptions::small(name) };
        let forms =
            if *name == "gpt" { vec![ModelOptions::small(name), fused] } else { vec![ModelOptions::small(name)] };
        for options in forms {
            let events = |backend: Arc<dyn Backend>| runs::train(name, &options, None, device(backend)).unwrap().0;
            let mine = events(backend.clone());
            for (other, theirs) in [("meta", events(Arc::new(meta()))), ("cpu", events(Arc::new(Cpu::new().unwrap())))]
            {
                runs::same(("wgpu", &mine), (other, &theirs)).unwrap_or_else(|problem| panic!("{name}: {problem}"));
            }
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
        let settings = runs::settings(name, &options, None, 20).unwrap();
        let losses = |backend: Arc<dyn Backend>| runs::run(name, &options, &settings, device(backend)).unwrap().1;
        let (mine, theirs) = (losses(backend.clone()), losses(Arc::new(Cpu::new().unwrap())));
        assert_eq!(mine.len(), 20);
        for (step, (x, y)) in mine.iter().zip(&theirs).enumerate() {
            // Over twenty steps, differences in the last bits of f32 may grow, but not further than this.
            assert!((x - y).abs() <= 1e-4 * y.abs().max(1.0), "{name}: loss {x} at step {step}, the CPU has {y}");
        }
    }
}

#[test]
fn steps_leave_nothing_behind_and_submit_little() {
    let Some((backend, _alone)) = adapter() else { return };
    let options = ModelOptions { layers: Some(3), width: Some(24), features: Some(16), ..ModelOptions::default() };
    let architecture = architecture("mlp", &options).unwrap();
    let settings = runs::settings("mlp", &options, None, 200).unwrap();
    let device = Device::builder(backend.clone() as Arc<dyn Backend>).build();
    let mut trainer = Trainer::build(&*architecture, &device, &settings, Source::Synthetic { seed: 5 }, "").unwrap();
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
