//! Fills of single elements that wait for each other.

use std::sync::Arc;

use memcore::array::Array;
use memcore::{DType, Device, Result};

use crate::emulator;

fn scalars(device: &Device, dtype: DType, count: usize) -> Result<Vec<Array>> {
    (0..count).map(|_| Array::zeros(device, &[], dtype)).collect()
}

fn launches() -> Result<usize> {
    emulator::launches().map_err(|problem| memcore::Error::backend("emulator", problem))
}

/// Fills and reads back; returns how many launches that took.
fn filled(device: &Device, scalars: &[Array], values: &[f32]) -> Result<usize> {
    device.synchronize()?;
    let before = launches()?;
    for (scalar, value) in scalars.iter().zip(values) {
        scalar.fill_(f64::from(*value))?;
    }
    let read: Vec<f32> = scalars.iter().map(|scalar| Ok(scalar.to_vec::<f32>()?[0])).collect::<Result<_>>()?;
    assert_eq!(read, values[..read.len()]);
    Ok(launches()? - before)
}

fn run(device: &Device) -> Result<()> {
    let counters = scalars(device, DType::F32, 250)?;
    let values: Vec<f32> = (0..250).map(|i| i as f32 + 1.0).collect();
    // 120 elements are in one launch.
    assert_eq!(filled(device, &counters, &values)?, 3);

    // The last of two values counts, and one of another width is a launch of its own.
    let (counter, half) = (&counters[0], Array::zeros(device, &[], DType::F16)?);
    device.synchronize()?;
    let before = launches()?;
    counter.fill_(7.0)?;
    counter.fill_(8.0)?;
    half.fill_(0.5)?;
    assert_eq!(half.cast(DType::F32)?.to_vec::<f32>()?, [0.5]);
    assert_eq!(counter.to_vec::<f32>()?, [8.0]);
    assert_eq!(launches()? - before, 4);

    // A kernel behind a fill sees it, and a fill behind a kernel is not seen by it.
    counter.fill_(2.0)?;
    let sum = counter.affine(10.0, 0.0)?;
    counter.fill_(3.0)?;
    assert_eq!(sum.to_vec::<f32>()?, [20.0]);
    assert_eq!(counter.to_vec::<f32>()?, [3.0]);
    Ok(())
}

/// They are in one launch until something else is queued or read, and come before it.
pub(crate) fn together() -> std::result::Result<(), String> {
    let plain = Device::builder(Arc::new(emulator::open()?)).build();
    run(&plain).map_err(|error| error.to_string())
}
