//! Compares closed forms with runs.

use std::sync::Arc;

use lab_analysis::predict::Network;
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{Device, Profile};

/// Trains with each batch size and compares the memory after each step.
fn compare(name: &str, network: Network, kind: OptimizerKind) {
    for profile in ["native", "torch-2.11-sm90", "torch-2.11-sm75"] {
        let profile = Profile::named(profile).unwrap();
        for batch in [1, 2, 7, 32, 33, 64, 100, 128, 255, 300, 511] {
            let meta = Arc::new(Meta::new(DeviceProfile::default()));
            let device = Device::builder(meta).profile(profile.clone()).build();
            let settings = RunSettings::new(batch, 2, OptimizerSettings::new(kind, 1e-3));
            let architecture = architecture(name, &ModelOptions::default()).unwrap();
            let source = Source::Synthetic { seed: 0 };
            let mut trainer = Trainer::build(&*architecture, &device, &settings, source, "").unwrap();
            let held = network.held(batch, &profile).unwrap();
            let model = device.stats().requested_bytes.all.current;
            assert_eq!((model, 4 * network.parameters), (held.parameters, held.gradients), "{name}");
            for step in 0..2 {
                trainer.step(step).unwrap();
                let requested = device.stats().requested_bytes.all.current;
                assert_eq!(requested, held.total(), "{name}, batch {batch}, step {step}: {held:?}");
                assert_eq!(device.tape().len() as u64, network.nodes, "{name}, batch {batch}");
            }
        }
    }
}

#[test]
fn what_a_script_holds_after_a_step() {
    compare("simple-cnn", Network::SIMPLE_CNN, OptimizerKind::Adam);
    compare("linear", Network::LINEAR, OptimizerKind::Sgd);
    compare("two-layer", Network::TWO_LAYER, OptimizerKind::Sgd);
}

#[test]
fn workspaces_that_come_for_each_product_anew_have_no_closed_form() {
    let profile = Profile { keeps_workspaces: false, ..Profile::torch_2_11(90) };
    assert_eq!(Network::SIMPLE_CNN.held(32, &profile), None);
}
