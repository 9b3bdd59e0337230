//! Predictions beside runs.

use std::sync::Arc;

use lab::models::{ModelOptions, architecture};
use lab::predict::{Forecast, Network, Rules};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{Device, Profile};

fn device(profile: &str) -> Device {
    let profile = Profile::named(profile).unwrap();
    Device::builder(Arc::new(Meta::new(DeviceProfile::default()))).profile(profile).build()
}

/// Runs three steps of each batch on one device and compares every row with the prediction.
fn compare(profile: &str, name: &str, network: &Network, kind: OptimizerKind, batches: &[usize]) {
    let device = device(profile);
    let mut forecast = Forecast::new(Rules::of(&device).unwrap(), network.clone());
    for &batch in batches {
        let settings = RunSettings::new(batch, 3, OptimizerSettings::new(kind, 1e-3));
        let architecture = architecture(name, &ModelOptions::default()).unwrap();
        let source = Source::Synthetic { seed: 0 };
        let mut trainer = Trainer::new(&*architecture, &device, &settings, source, "").unwrap();
        forecast.model("model");
        for step in 0..3 {
            trainer.step(step).unwrap();
            forecast.step(&format!("s{step}"), batch);
        }
        let rows = trainer.finish(Some("end"));
        forecast.finish("end");
        let predicted = &forecast.rows()[forecast.rows().len() - rows.len()..];
        for (ours, row) in predicted.iter().zip(&rows) {
            let at = format!("{profile} {name} batch {batch} of {batches:?}, {}", row.label);
            assert_eq!(ours.label, row.label, "{at}");
            assert_eq!(ours.requested, row.requested, "{at}: requested");
            assert_eq!(ours.phase_peak, row.phase_peak_allocated, "{at}: peak");
            assert_eq!(ours.allocated, row.allocated, "{at}: allocated");
            assert_eq!(ours.reserved, row.reserved, "{at}: reserved");
        }
    }
    assert_eq!(forecast.peak().allocated, device.usage().peak_bytes());
}

#[test]
fn simple_cnn_is_predicted_to_the_byte() {
    for profile in ["native", "torch-2.11-sm90", "torch-2.11-sm75"] {
        let network = Network::simple_cnn();
        for batch in (1..=40).chain([47, 48, 63, 64, 65, 79, 80, 81, 96, 100, 127, 128, 129, 160, 200, 256, 300, 511]) {
            compare(profile, "simple-cnn", &network, OptimizerKind::Adam, &[batch]);
        }
        for orders in [&[128, 32][..], &[32, 128], &[128, 32, 128, 32], &[7, 100, 33, 1]] {
            compare(profile, "simple-cnn", &network, OptimizerKind::Adam, orders);
        }
    }
}

#[test]
fn regressions_are_predicted_to_the_byte() {
    for profile in ["native", "torch-2.11-sm90"] {
        for batch in [1, 32, 33, 100] {
            compare(profile, "linear", &Network::linear(), OptimizerKind::Sgd, &[batch]);
            compare(profile, "two-layer", &Network::two_layer(), OptimizerKind::Sgd, &[batch]);
        }
    }
}
