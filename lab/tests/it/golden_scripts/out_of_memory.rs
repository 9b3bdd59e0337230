//! Group g: training on a device of 256 MiB, where one of the batches does not fit.

use lab::record::Row;
use memcore::backend::kernel::Reduction;
use memcore::memory::Category;
use memcore::nn::{Activation, Init, Linear, Sequential};
use memcore::optim::{Adam, AdamOptions, Optimizer};
use memcore::{Array, DType, Device, Error, Result, Tensor, ops};

use super::compare::check;

fn network(init: &Init) -> Result<Sequential> {
    let mut layers = Sequential::new();
    for i in 0..4 {
        layers.push(Linear::new(&init.at(2 * i), if i == 0 { 512 } else { 1024 }, 1024, true)?);
        layers.push(Activation::new(&init.at(2 * i + 1), ops::relu));
    }
    layers.push(Linear::new(&init.at(8), 1024, 10, true)?);
    Ok(layers)
}

fn random(device: &Device, dims: &[usize]) -> Result<Tensor> {
    let array = Array::empty_as(device, dims, DType::F32, Category::Input)?;
    array.uniform_(-1.0, 1.0)?;
    Ok(Tensor::from_array(array))
}

/// Values in the variables of one round. After an error this includes the variables of the functions on the stack, which PyTorch's error keeps.
#[derive(Default)]
struct Variables {
    /// Initial gradient of a backward pass.
    seed: Option<Array>,
    input: Option<Tensor>,
    x: Option<Tensor>,
    y: Option<Tensor>,
    loss: Option<Tensor>,
}

impl Variables {
    fn round(&mut self, device: &Device, layers: &Sequential, optimizer: &mut Adam, batch: usize) -> Result<()> {
        let x = self.x.insert(random(device, &[batch, 512])?);
        let y = self.y.insert(random(device, &[batch, 10])?);
        self.input = Some(x.clone());
        for layer in layers.modules() {
            let input = self.input.as_ref().map(|input| layer.forward(input)).transpose()?;
            self.input = input;
        }
        let out = self.input.take();
        let loss = out.as_ref().map(|out| ops::mse_loss(out, y, Reduction::Mean)).transpose()?;
        drop(out);
        self.loss = loss;
        if let Some(loss) = &self.loss {
            let seed = self.seed.insert(Array::ones(device, &[], DType::F32)?);
            loss.backward_with(seed.clone(), false)?;
            self.seed = None;
        }
        optimizer.step()?;
        optimizer.zero_grad(true)
    }
}

fn program(device: &Device) -> Result<Vec<Row>> {
    let init = Init::new(device, DType::F32, 0);
    let layers = network(&init)?;
    let mut optimizer = Adam::new(init.parameters(), AdamOptions::adamw())?;
    drop(init);
    let mut rows = vec![Row::take(device, "model")];
    for batch in [256, 1024, 4096, 8192, 256] {
        let mut variables = Variables::default();
        match variables.round(device, &layers, &mut optimizer, batch) {
            Ok(()) => rows.push(Row::take(device, format!("b{batch}.ok"))),
            Err(Error::OutOfMemory(report)) => {
                assert!(batch > 1024 && report.requested_bytes >= 8 << 20, "{batch}");
                rows.push(Row::take(device, format!("b{batch}.oom")));
            }
            Err(other) => return Err(other),
        }
        drop(variables);
        optimizer.zero_grad(true)?;
        rows.push(Row::take(device, format!("b{batch}.cleared")));
    }
    drop(layers);
    drop(optimizer);
    Ok(rows)
}

#[test]
fn g_mlp_oom_256m_expandable() {
    check("g_mlp_oom_256m_expandable", |device| program(device).unwrap());
}

#[test]
fn g_mlp_oom_256m() {
    check("g_mlp_oom_256m", |device| program(device).unwrap());
}
