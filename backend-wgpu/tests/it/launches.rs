//! An optimizer's step is a launch for each set of segments and form of access, however many parameters there are.

use std::sync::Arc;

use backend_wgpu::Wgpu;
use lab::models::{ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, Source, Trainer};
use memcore::Device;
use memcore::backend::Backend;
use memcore::optim::Implementation;

use crate::{alone, runs};

/// Kernels of the third step of a network whose optimizer is fused.
fn kernels(name: &str, options: &ModelOptions, kind: OptimizerKind) -> Option<u64> {
    let backend = conformance::or_skip("wgpu", Wgpu::open(0)).map(Arc::new)?;
    let optimizer = OptimizerSettings { implementation: Implementation::Fused, ..OptimizerSettings::new(kind, 1e-3) };
    let settings = runs::settings(name, options, Some(optimizer), 3).unwrap();
    let architecture = architecture(name, options).unwrap();
    let device = Device::builder(backend.clone() as Arc<dyn Backend>).build();
    let mut trainer = Trainer::build(&*architecture, &device, &settings, Source::Synthetic { seed: 5 }, "").unwrap();
    let mut before = 0;
    for step in 0..3 {
        before = backend.statistics().dispatches;
        trainer.step(step).unwrap();
    }
    Some(backend.statistics().dispatches - before)
}

#[test]
fn a_step_has_few_more_kernels_than_its_network() {
    let _alone = alone();
    let gpt = ModelOptions { layers: Some(2), width: Some(16), heads: Some(2), ..ModelOptions::default() };
    let Some(of_gpt) = kernels("gpt", &gpt, OptimizerKind::AdamW) else { return };
    let of_cnn = kernels("simple-cnn", &ModelOptions::default(), OptimizerKind::Sgd).unwrap();
    // With a launch for each parameter these were 176 and 22.
    assert_eq!([of_gpt, of_cnn], [148, 20]);
}
