//! Fused optimizers whose parameters have not all taken as many steps.

use std::sync::Arc;

use memcore::nn::{Fill, Init};
use memcore::optim::{Adam, AdamOptions, Implementation, Optimizer};
use memcore::{Array, DType, Device, Result};

use crate::emulator;

/// Three parameters after three steps; the second has no gradient in the first.
fn trained(device: &Device, implementation: Implementation) -> Result<Vec<f32>> {
    let init = Init::new(device, DType::F32, 0);
    let mut parameters = Vec::new();
    for name in ["a", "b", "c"] {
        parameters.push(init.parameter(name, &[4], Fill::Constant(1.0))?);
    }
    let options = AdamOptions { implementation, lr: 0.1, ..AdamOptions::adamw() };
    let mut optimizer = Adam::new(parameters.clone(), options)?;
    for step in 0..3 {
        for (i, parameter) in parameters.iter().enumerate() {
            let values = [0.5, -1.0, 2.0, 0.25].map(|x: f32| x / (step + 1 + i) as f32);
            let has_none = i == 1 && step == 0;
            let gradient = if has_none { None } else { Some(Array::from_slice(device, &[4], &values)?) };
            parameter.tensor().set_grad(gradient);
        }
        optimizer.step()?;
    }
    let values = parameters.iter().map(|parameter| parameter.array().to_vec::<f32>()).collect::<Result<Vec<_>>>()?;
    Ok(values.concat())
}

/// The fused form, which makes a call for each number of steps, gives what the loop over parameters does.
pub(crate) fn a_parameter_joins_later() -> std::result::Result<(), String> {
    let device = Device::builder(Arc::new(emulator::open()?)).build();
    let of = |implementation| trained(&device, implementation).map_err(|error| error.to_string());
    let (fused, plain) = (of(Implementation::Fused)?, of(Implementation::Loop)?);
    let far = fused.iter().zip(&plain).find(|(x, y)| (**x - **y).abs() > 1e-6);
    far.map_or(Ok(()), |far| Err(format!("{far:?} in {fused:?} and {plain:?}")))
}
