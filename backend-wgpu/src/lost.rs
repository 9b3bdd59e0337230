//! A device that goes away under a program. Loss is provoked by destroying it, which is how a driver's reset looks from here: the callback comes, and
//! whatever is asked afterwards is refused.

use std::sync::Arc;

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
    // As nobody else has it open.
    let Some(gpu) = conformance::or_skip(NAME, Gpu::open_anew(0)) else { return };
    let name = gpu.info.name.clone();
    let backend = Arc::new(Wgpu::on(gpu.clone()).unwrap());
    let device = Device::builder(backend.clone()).build();
    let x = Tensor::from_array(Array::from_slice(&device, &[4], &[1.0f32, 2.0, 3.0, 4.0]).unwrap());
    assert_eq!(ops::add(&x, &x).unwrap().array().to_f64().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    // Recorded, and not yet with the device when it goes.
    let pending = ops::mul(&x, &x).unwrap();

    gpu.device.destroy();
    refused("reading", &name, pending.array().to_f64());
    refused("waiting", &name, backend.synchronize());
    refused("a segment", &name, backend.alloc_segment(1 << 20));
    refused("a kernel", &name, ops::add(&x, &x));
    refused("writing", &name, Array::from_slice(&device, &[4], &[0.0f32; 4]));
    // It stays so, and everything can still be let go.
    refused("reading", &name, x.array().to_f64());
    drop((x, pending, device, backend));

    // The adapter is there as before.
    let device = Device::builder(Arc::new(Wgpu::open(0).unwrap())).build();
    let y = Array::from_slice(&device, &[2], &[5.0f32, 6.0]).unwrap();
    assert_eq!(y.to_f64().unwrap(), [5.0, 6.0]);
}
