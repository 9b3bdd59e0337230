//! Values: gradient steps lower the loss, and equal seeds give equal runs.

use std::sync::Arc;

use backend_cpu::Cpu;
use conformance::Reference;
use memcore::Device;
use memcore::backend::Backend;

use super::cases::{Case, is_deep, plain, train, trainer};

/// The losses of a case on a fresh device.
fn losses(case: &Case) -> Vec<f64> {
    let backend: Arc<dyn Backend> = match is_deep(case.architecture.name()) {
        true => Arc::new(Cpu::new().unwrap()),
        false => Arc::new(Reference::default()),
    };
    let device = Device::builder(backend).build();
    let mut trainer = trainer(case, &device).unwrap();
    train(case, &mut trainer).unwrap()
}

/// Number of steps for the network's size, and a learning rate with a visible effect.
fn learning() -> Vec<Case> {
    let mut cases = plain();
    for case in &mut cases {
        let name = case.architecture.name().to_string();
        case.settings.steps = match name.as_str() {
            "simple-cnn" | "small-network" | "larger-conv" => 4,
            // Fifty layers that normalise a few values each: after five steps rounding decides whether the loss is lower.
            "resnet50" => 12,
            name if is_deep(name) => 5,
            // Other tokens in every step.
            "seq2seq-attention" => 150,
            _ => 15,
        };
        if name.starts_with("resnet") || ["mobilenet_v2", "densenet121"].contains(&name.as_str()) {
            // Batch normalisation of two values gives their signs.
            case.settings.batch = if name == "resnet50" { 16 } else { 8 };
        }
        if name == "seq2seq-attention" {
            case.settings.batch = 16;
        }
        case.settings.optimizer.lr = match name.as_str() {
            "linear" | "two-layer" => 0.05,
            "small-network" => 0.05,
            "larger-conv" => 0.02,
            "resnet18" | "resnet34" => 2e-3,
            "resnet50" => 1e-2,
            // Little comes through thirteen layers of small weights: what learns is the end.
            "vgg16" => 0.05,
            _ => 3e-3,
        };
    }
    cases
}

#[test]
fn the_loss_of_every_network_goes_down() {
    for case in learning() {
        let losses = losses(&case);
        assert_eq!(losses.len(), case.settings.steps, "{}", case.name);
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last < 0.95 * first, "{}: {losses:?}", case.name);
    }
}

#[test]
fn one_seed_gives_the_same_losses_to_the_bit() {
    for mut case in learning() {
        case.settings.steps = 3;
        let bits = |losses: Vec<f64>| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<u64>>();
        let first = losses(&case);
        assert_eq!(bits(first.clone()), bits(losses(&case)), "{}", case.name);
        case.settings.seed += 1;
        assert_ne!(first, losses(&case), "{}: another seed, the same losses", case.name);
    }
}
