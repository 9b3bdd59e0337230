//! Five training steps of small networks on the device in f32, against f64 on the [`Reference`]: everything together.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::backend::Backend;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry, Reduction};
use memcore::nn::{
    Activation, AttentionOptions, BatchNorm2d, Conv2d, Embedding, Flatten, Init, LayerNorm, Linear, MaxPool2d, Module,
    MultiHeadAttention, Sequential, write_f32,
};
use memcore::optim::{Adam, AdamOptions, Implementation, Optimizer, Sgd, SgdOptions};
use memcore::{Array, DType, Error, Result, Tensor, ops};

use super::trial::trial;
use crate::data::{Data, seed};
use crate::device::Device;
use crate::execute::Verdict;
use crate::reference::Reference;

const STEPS: usize = 5;

/// Allowed relative distance of a loss. A step's errors in f32 are some tens of ε, and each step multiplies the earlier
/// errors by a small factor: a thousand ε are ample after five steps. A gradient that is 1 % wrong in one layer changes
/// the third digit.
const NEAR: f64 = 1e3 * f32::EPSILON as f64;

/// A network with its data.
struct Network {
    name: &'static str,
    build: fn(&Init) -> Result<Box<dyn Module>>,
    /// Sizes of a batch of floats. Empty for tokens: then 2 × 6 tokens of 11.
    input: &'static [usize],
    /// Classes per row of the result.
    classes: usize,
}

const NETWORKS: &[Network] = &[
    Network { name: "mlp", build: mlp, input: &[8, 12], classes: 5 },
    Network { name: "cnn", build: cnn, input: &[3, 2, 8, 8], classes: 4 },
    Network { name: "transformer", build: |init| transformer(init, false), input: &[], classes: 11 },
    Network { name: "transformer_fused", build: |init| transformer(init, true), input: &[], classes: 11 },
];

/// Creates the optimizer of a network's parameters.
type Optimize = fn(Vec<memcore::nn::Parameter>) -> Result<Box<dyn Optimizer>>;

const OPTIMIZERS: &[(&str, Optimize)] = &[
    ("sgd", |parameters| {
        let options = SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() };
        Ok(Box::new(Sgd::new(parameters, options)?))
    }),
    ("adamw_foreach", |parameters| {
        Ok(Box::new(Adam::new(parameters, AdamOptions { lr: 0.01, ..AdamOptions::adamw() })?))
    }),
    ("adam_fused", |parameters| {
        let options = AdamOptions { lr: 0.01, implementation: Implementation::Fused, ..AdamOptions::adam() };
        Ok(Box::new(Adam::new(parameters, options)?))
    }),
];

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for network in NETWORKS {
        for (optimizer, optimize) in OPTIMIZERS {
            let name = format!("training::{}::{optimizer}", network.name);
            trials.push(trial(name, device, move |device| compare(network, *optimize, device)));
        }
    }
    trials
}

fn mlp(init: &Init) -> Result<Box<dyn Module>> {
    let mut layers = Sequential::new();
    layers.push(Linear::new(&init.at("l1"), 12, 16, true)?);
    layers.push(Activation::new(&init.at("act"), ops::relu));
    layers.push(Linear::new(&init.at("l2"), 16, 5, true)?);
    Ok(Box::new(layers))
}

fn cnn(init: &Init) -> Result<Box<dyn Module>> {
    let mut layers = Sequential::new();
    let same = Conv2dGeometry { padding: [1, 1], ..Conv2dGeometry::default() };
    layers.push(Conv2d::new(&init.at("conv"), 2, 4, 3, same, true)?);
    layers.push(BatchNorm2d::new(&init.at("bn"), 4)?);
    layers.push(Activation::new(&init.at("act"), ops::silu));
    let halves = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
    layers.push(MaxPool2d::new(&init.at("pool"), halves));
    layers.push(Flatten);
    layers.push(Linear::new(&init.at("fc"), 64, 4, true)?);
    Ok(Box::new(layers))
}

/// A block of a decoder: `x + attention(norm(x))`, then `x + fc(gelu(fc(norm(x))))`.
struct Block {
    norms: [LayerNorm; 2],
    attention: MultiHeadAttention,
    feed: [Linear; 2],
    fused: bool,
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let length = x.dims().get(1).copied().unwrap_or(1);
        let mask = if self.fused { None } else { Some(Tensor::from_array(ops::causal_mask(x.device(), length)?)) };
        let attended = self.attention.attend(self.norms[0].forward(x)?, mask.as_ref())?;
        let x = ops::add(x, &attended)?;
        let wide = ops::gelu(&self.feed[0].forward(&self.norms[1].forward(&x)?)?)?;
        ops::add(&x, &self.feed[1].forward(&wide)?)
    }
}

fn transformer(init: &Init, fused: bool) -> Result<Box<dyn Module>> {
    let mut layers = Sequential::new();
    layers.push(Embedding::new(&init.at("tokens"), 11, 8)?);
    for i in 0..2 {
        let init = init.at(i);
        let options = AttentionOptions { causal: true, fused, dropout: 0.0 };
        layers.push(Block {
            norms: [LayerNorm::new(&init.at("n1"), 8, 1e-5)?, LayerNorm::new(&init.at("n2"), 8, 1e-5)?],
            attention: MultiHeadAttention::new(&init.at("attention"), 8, 2, options)?,
            feed: [Linear::new(&init.at("widen"), 8, 16, true)?, Linear::new(&init.at("narrow"), 16, 8, true)?],
            fused,
        });
    }
    layers.push(Linear::new(&init.at("head"), 8, 11, false)?);
    Ok(Box::new(layers))
}

/// Values that are the same on every device and in every type: f32 represents them exactly.
fn floats(name: &str, count: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(count);
    Data::Range(-1.0, 1.0).each_element(DType::F32, count, seed(name), |_, bytes| {
        let mut word = [0; 4];
        word.copy_from_slice(bytes);
        values.push(f32::from_le_bytes(word));
    });
    values
}

fn input(network: &Network, device: &memcore::Device, dtype: DType) -> Result<Tensor> {
    if network.input.is_empty() {
        let tokens: Vec<i64> = (0..12).map(|i| i * i * 3 % 11).collect();
        return Tensor::from_slice(device, &[2, 6], &tokens);
    }
    let array = Array::empty(device, network.input, dtype)?;
    write_f32(&array, &floats(network.name, array.numel()))?;
    Ok(Tensor::from_array(array))
}

/// The losses before each step and after the last.
fn losses(network: &Network, optimize: Optimize, backend: Arc<dyn Backend>, dtype: DType) -> Result<Vec<f64>> {
    let device = memcore::Device::builder(backend).build();
    let init = Init::new(&device, dtype, 11);
    let module = (network.build)(&init)?;
    let mut optimizer = optimize(init.parameters())?;
    let x = input(network, &device, dtype)?;
    let rows = if network.input.is_empty() { 12 } else { network.input[0] };
    let classes: Vec<i64> = (0..rows).map(|i| (i * 5 % network.classes) as i64).collect();
    let targets = Tensor::from_slice(&device, &[rows], &classes)?;
    let mut losses = Vec::new();
    for step in 0..=STEPS {
        optimizer.zero_grad(true)?;
        let logits = ops::view(&module.forward(&x)?, &[rows, network.classes])?;
        let loss = ops::cross_entropy(&logits, &targets, Reduction::Mean)?;
        losses.push(loss.item()?);
        if step < STEPS {
            loss.backward(false)?;
            optimizer.step()?;
        }
    }
    Ok(losses)
}

fn compare(network: &Network, optimize: Optimize, device: &Device) -> Result<Verdict, String> {
    let wanted =
        losses(network, optimize, Arc::new(Reference::default()), DType::F64).map_err(|e| format!("in f64: {e}"))?;
    if wanted[STEPS] >= wanted[0] {
        return Err(format!("the reference itself does not learn: {wanted:?}"));
    }
    let got = match losses(network, optimize, device.shared(), DType::F32) {
        Ok(got) => got,
        Err(error @ Error::Unsupported { .. }) => return Ok(Verdict::Skipped(error.to_string())),
        Err(error) => return Err(error.to_string()),
    };
    for (step, (want, got)) in wanted.iter().zip(&got).enumerate() {
        // NaN is not near any value.
        let near = (got - want).abs() <= NEAR * want.abs().max(1.0);
        if !near {
            return Err(format!("loss {got} instead of {want} after {step} steps (± {NEAR:e}); {got:?} of {wanted:?}"));
        }
    }
    Ok(Verdict::Passed)
}
