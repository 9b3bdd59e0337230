//! Activation checkpointing: the same losses and gradients bit for bit, with less memory.

use std::sync::Arc;

use backend_cpu::Cpu;
use lab_models::{ModelOptions, architecture};
use lab_training::Precision;
use memcore::Device;
use memcore::memory::Category;

use super::cases::{Case, settings, trainer};

/// Losses, the gradients of the last of two steps, and the activations at the peak.
fn trained(name: &str, options: &ModelOptions, precision: Precision) -> (Vec<u64>, Vec<Vec<u64>>, u64) {
    let architecture = architecture(name, options).unwrap();
    let mut settings = settings(&*architecture);
    // Batch normalisation of two values gives their signs.
    (settings.batch, settings.precision) = (6, precision);
    let case = Case { name: name.into(), architecture, settings };
    let device = Device::builder(Arc::new(Cpu::new().unwrap())).history(true).build();
    let mut trainer = trainer(&case, &device).unwrap();
    let losses = (0..2).map(|step| trainer.step(step).unwrap().unwrap().to_bits()).collect();
    let gradient = |p: &memcore::nn::Parameter| {
        let values = p.grad().unwrap().to_f64().unwrap();
        assert!(values.iter().all(|v| v.is_finite()), "{name}: {}", p.path());
        values.into_iter().map(f64::to_bits).collect()
    };
    let gradients = trainer.phases().network.model.parameters.iter().map(gradient).collect();
    let kept = device.usage().at_peak().by_category[Category::Activation as usize];
    (losses, gradients, kept)
}

/// Compares every kind of checkpointing with a run that keeps everything.
fn compare(name: &str, options: ModelOptions, precision: Precision) {
    let (losses, gradients, kept) = trained(name, &options, precision);
    // DenseNet's layers are all checkpointed, or none.
    let ways = if name == "densenet121" { &["blocks"][..] } else { &["blocks", "sqrt", "0,2"] };
    for recompute in ways {
        let options = ModelOptions { recompute: recompute.parse().unwrap(), ..options.clone() };
        let again = trained(name, &options, precision);
        assert_eq!(again.0, losses, "{name} {recompute}: losses");
        assert!(again.1 == gradients, "{name} {recompute}: gradients");
        // One kept value joins two linear layers with a ReLU between, checkpointed or not.
        assert!(again.2 < kept || name == "mlp", "{name} {recompute}: {} of {kept}", again.2);
    }
}

#[test]
fn gradients_of_checkpointed_networks_are_the_same_to_the_bit() {
    let mlp = ModelOptions { layers: Some(5), width: Some(24), ..ModelOptions::default() };
    compare("mlp", mlp, Precision::Fp32);
    for name in ["resnet18", "resnet50", "mobilenet_v2", "densenet121", "convnext-tiny"] {
        compare(name, ModelOptions::small(name), Precision::Fp32);
    }
    compare("vgg16", ModelOptions { dropout: Some(0.5), ..ModelOptions::small("vgg16") }, Precision::Fp32);
}

#[test]
fn gradients_of_a_checkpointed_gpt_are_the_same_to_the_bit_with_dropout() {
    let gpt = ModelOptions { layers: Some(4), ..ModelOptions::small("gpt") };
    for options in [
        ModelOptions { dropout: Some(0.3), ..gpt.clone() },
        ModelOptions { dropout: Some(0.3), fused_attention: true, ..gpt.clone() },
        ModelOptions { tied: true, ..gpt.clone() },
    ] {
        for precision in [Precision::Fp32, Precision::AutocastBf16, Precision::AutocastFp16] {
            compare("gpt", options.clone(), precision);
        }
    }
    let with = |dropout| trained("gpt", &ModelOptions { dropout, ..gpt.clone() }, Precision::Fp32).1;
    assert_ne!(with(Some(0.3)), with(None), "dropout drops nothing");
}
