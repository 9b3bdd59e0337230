//! Loss of a device while a program uses it. Destroying the device provokes it, which looks like a driver's reset: the
//! callback is called, and later requests are refused.

use std::ops::ControlFlow;
use std::sync::Arc;

use lab::models::{self, ModelOptions};
use lab::training::{OptimizerKind, OptimizerSettings, Progress, RunSettings, Source, train};
use memcore::autograd::Tensor;
use memcore::backend::{Backend, DeviceMemory};
use memcore::{Array, Device, Result, ops};

use crate::NAME;
use crate::backend::Wgpu;
use crate::gpu::Gpu;

fn refused<T>(what: &str, name: &str, outcome: Result<T>) {
    let Err(error) = outcome else { panic!("{what} on a device that is gone") };
    let text = error.to_string();
    assert!(text.contains(name) && text.contains("lost"), "{what}: {text}");
    assert!(!error.is_out_of_memory(), "{what}: {text}");
}

#[test]
fn a_lost_device_is_an_error_that_names_it() {
    // A device that nothing else has opened.
    let Some(gpu) = conformance::or_skip(NAME, Gpu::open_anew(0)) else { return };
    let name = gpu.info.name.clone();
    let backend = Arc::new(Wgpu::on(gpu.clone()).unwrap());
    let device = Device::builder(backend.clone()).build();
    let x = Tensor::from_array(Array::from_slice(&device, &[4], &[1.0f32, 2.0, 3.0, 4.0]).unwrap());
    assert_eq!(ops::add(&x, &x).unwrap().array().to_f64().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    // Recorded, but not yet submitted when the device is lost.
    let pending = ops::mul(&x, &x).unwrap();

    gpu.device.destroy();
    refused("reading", &name, pending.array().to_f64());
    refused("waiting", &name, backend.synchronize());
    refused("a segment", &name, backend.alloc_segment(1 << 20));
    refused("a kernel", &name, ops::add(&x, &x));
    refused("writing", &name, Array::from_slice(&device, &[4], &[0.0f32; 4]));
    // The device stays lost, and everything can still be freed.
    refused("reading", &name, x.array().to_f64());
    drop((x, pending, device, backend));

    // The adapter can be opened again.
    let device = Device::builder(Arc::new(Wgpu::open(0).unwrap())).build();
    let y = Array::from_slice(&device, &[2], &[5.0f32, 6.0]).unwrap();
    assert_eq!(y.to_f64().unwrap(), [5.0, 6.0]);
}

/// The command line exits with code 3 on such an error.
#[test]
fn a_device_lost_during_a_training_ends_it() {
    let Some(gpu) = conformance::or_skip(NAME, Gpu::open_anew(0)) else { return };
    let device = Device::builder(Arc::new(Wgpu::on(gpu.clone()).unwrap())).build();
    let model = models::architecture("mlp", &ModelOptions::default()).unwrap();
    let settings = RunSettings::new(4, 5, OptimizerSettings::new(OptimizerKind::Sgd, 0.1));
    let progress = &mut |progress: Progress| {
        if progress.done == 2 {
            gpu.device.destroy();
        }
        ControlFlow::Continue(())
    };
    let failed = train(&*model, &device, &settings, Source::Synthetic { seed: 0 }, progress).unwrap_err();
    let text = failed.error.to_string();
    assert!(matches!(failed.error, lab::Error::Core(memcore::Error::Backend { .. })), "{text}");
    assert!(text.contains(&gpu.info.name) && text.contains("lost"), "{text}");
    assert_eq!(failed.partial.losses.len(), 2, "what was measured until then is known");
}
