//! Exports of PyTorch: the archive, and the network that it holds on a device without values.
#![no_main]

use std::io::Write;
use std::ops::ControlFlow;

use lab::exported;
use lab::training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use libfuzzer_sys::fuzz_target;
use memcore::Device;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let Ok(model) = exported::load(file.path(), None) else { return };
    let device = Device::meta("torch-2.11-sm90").unwrap();
    let settings = RunSettings::new(model.sizes().example, 1, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let _ = exported::train_from(&model, &device, &settings, source, &mut Continuation::default(), progress);
});
