//! Complete trainings on the CPU in which one call fails: they return an error of the right kind, and the next training on the device succeeds.

use std::ops::ControlFlow;
use std::sync::Arc;

use backend_cpu::Cpu;
use lab_models::{self as models, ModelOptions};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source, train};
use memcore::Device;
use memcore::backend::{Faulty, FaultyCall};
use memcore::memory::{Allocator, Caching, Direct};

/// Losses of a few steps of a small network.
fn losses(device: &Device) -> lab_base::Result<Vec<f64>> {
    let model =
        models::architecture("mlp", &ModelOptions { layers: Some(2), width: Some(8), ..ModelOptions::default() })?;
    let settings =
        RunSettings { accumulate: 2, ..RunSettings::new(4, 2, OptimizerSettings::new(OptimizerKind::AdamW, 0.01)) };
    let progress = &mut |_| ControlFlow::Continue(());
    Ok(train(&*model, device, &settings, Source::Synthetic { seed: 1 }, progress)?.losses)
}

fn device(faulty: &Arc<Faulty<Cpu>>, direct: bool) -> Device {
    let allocator: Box<dyn Allocator> =
        if direct { Box::new(Direct::new(faulty.clone())) } else { Box::new(Caching::with_defaults(faulty.clone())) };
    Device::builder(faulty.clone()).allocator(allocator).build()
}

fn allocated(device: &Device) -> u64 {
    device.stats().allocated_bytes.all.current
}

/// Makes each call of a kind fail in turn; returns the number of calls.
fn each_fails(kind: FaultyCall, direct: bool, is_expected: impl Fn(&memcore::Error) -> bool) -> u64 {
    let unbroken = Arc::new(Faulty::new(Cpu::with_threads(1).unwrap(), kind, u64::MAX, 1));
    let whole = device(&unbroken, direct);
    let expected = losses(&whole).unwrap();
    assert_eq!(expected.len(), 2);
    let left = allocated(&whole);
    // The caching allocator frees its cache and tries a second time.
    let times = if kind == FaultyCall::AllocSegment && !direct { 2 } else { 1 };
    for n in 0..unbroken.calls() {
        let faulty = Arc::new(Faulty::new(Cpu::with_threads(1).unwrap(), kind, n, times));
        let device = device(&faulty, direct);
        match losses(&device) {
            Err(lab_base::Error::Core(error)) => assert!(is_expected(&error), "call {n}: {error}"),
            other => panic!("call {n} fails, and the training says {other:?}"),
        }
        assert!(allocated(&device) <= left, "call {n}: {} bytes are left", allocated(&device));
        let again = losses(&device).unwrap_or_else(|error| panic!("call {n}, and training again: {error}"));
        assert_eq!(again, expected, "call {n}");
    }
    unbroken.calls()
}

fn is_backends(error: &memcore::Error) -> bool {
    matches!(error, memcore::Error::Backend { .. })
}

fn is_out_of_memory(error: &memcore::Error) -> bool {
    matches!(error, memcore::Error::OutOfMemory(_))
}

#[test]
fn each_launch() {
    assert!(each_fails(FaultyCall::Launch, false, is_backends) > 30);
}

#[test]
fn each_copy() {
    // Two per micro-batch up, and its loss down, at least.
    assert!(each_fails(FaultyCall::Copy, false, is_backends) >= 3 * 4);
}

#[test]
fn each_segment() {
    assert!(each_fails(FaultyCall::AllocSegment, false, is_out_of_memory) > 0);
}

#[test]
fn each_allocation() {
    assert!(each_fails(FaultyCall::AllocSegment, true, is_out_of_memory) > 30);
}
