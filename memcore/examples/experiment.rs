//! Does a deeper network of the same width change what makes the peak of a training step?

use memcore::nn::{Activation, Linear, Sequential};
use memcore::optim::{Adam, AdamOptions};
use memcore::prelude::*;

/// Bytes at the peak of two steps, by category, and the operator that made it.
pub(crate) fn peak(layers: usize) -> Result<(u64, [u64; Category::COUNT], &'static str)> {
    let device = Device::meta("torch-2.11-sm90")?;
    let init = Init::new(&device, DType::F32, 0);
    let mut net = Sequential::new();
    for i in 0..layers {
        net.push(Linear::new(&init.at(i), 256, 256, true)?);
        net.push(Activation::new(&init.at(i), ops::relu));
    }
    let mut adam = Adam::new(net.parameters()?, AdamOptions::default())?;
    for step in 0..2 {
        device.phase(&format!("step {step}"));
        let x = Tensor::from_array(Array::empty(&device, &[128, 256], DType::F32)?);
        let classes = Tensor::from_array(Array::empty(&device, &[128], DType::I64)?);
        let loss = net.forward(&x)?.cross_entropy(&classes, Reduction::Mean)?;
        adam.zero_grad(true)?;
        loss.backward(false)?;
        adam.step()?;
    }
    let peak = device.usage().at_peak();
    Ok((peak.allocated_bytes, peak.by_category, peak.origin.op))
}

pub(crate) fn main() -> Result<()> {
    for layers in [2, 4, 8] {
        let (bytes, by_category, op) = peak(layers)?;
        println!("{layers} layers: {bytes} bytes at the peak, made by {op}");
        for category in Category::ALL.into_iter().filter(|&category| by_category[category as usize] > 0) {
            println!("  {:>10} {}", by_category[category as usize], category.name());
        }
    }
    Ok(())
}
