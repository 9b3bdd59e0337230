//! Forms of weights in inference, and the memory of each.

use std::time::Instant;

use lab_analysis::predict::rounded;
use lab_base::error::Result;
use memcore::memory::Category;
use memcore::ops::{self, QuantizedInt8};
use memcore::{Array, DType, Device, NoGrad, Tensor};

use super::subject::{Exam, HostLayer};
use crate::Setup;
use crate::session::undisturbed;
use crate::timing::{ROUNDS, Times};

/// Form in which weights are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As trained.
    Float32,
    /// In int8, converted to floats inside the product.
    Int8,
    /// In int8, converted to a matrix of floats before each product.
    Int8Ahead,
}

/// Measurements of one form.
pub(super) struct Trial {
    pub(super) form: Form,
    /// Bytes of weights, scales and biases.
    pub(super) weights_bytes: u64,
    /// Peak while the weights were converted to this form.
    pub(super) conversion_peak_bytes: u64,
    /// Peak of a forward pass, libraries' workspaces not counted.
    pub(super) inference_peak_bytes: u64,
    /// Predictions from the sizes alone.
    pub(super) foreseen: Option<Foreseen>,
    /// `[examples, classes]`. Empty on a device without values.
    pub(super) outputs: Vec<f32>,
    /// Times of the forward passes.
    pub(super) times: Times,
}

/// Predicted figures.
pub(super) struct Foreseen {
    pub(super) weights_bytes: u64,
    pub(super) conversion_peak_bytes: u64,
    pub(super) inference_peak_bytes: u64,
}

impl Form {
    pub(super) const ALL: [Form; 3] = [Form::Float32, Form::Int8, Form::Int8Ahead];

    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Float32 => "float32",
            Form::Int8 => "int8, floats in the product",
            Form::Int8Ahead => "int8, floats before it",
        }
    }
}

/// A layer on the device.
struct Layer {
    weight: Weight,
    bias: Tensor,
}

enum Weight {
    Float(Tensor),
    Int8(QuantizedInt8),
}

/// Puts the network on a fresh device in this form, and runs it.
pub(super) fn attempt(
    setup: &Setup<'_>,
    form: Form,
    layers: &[HostLayer],
    exam: &Exam,
    predictable: bool,
) -> Result<Trial> {
    let device = (setup.open)()?;
    let _no_grad = NoGrad::new();
    let mut network = loaded(&device, layers)?;
    if form != Form::Float32 {
        for layer in &mut network {
            layer.quantize()?;
        }
    }
    let weights_bytes = device.usage().by_category()[Category::Parameter as usize];
    let conversion_peak_bytes = device.usage().peak_bytes();
    let examples = exam.classes.len();
    let input = Array::empty_as(&device, &[examples, layers[0].inputs], DType::F32, Category::Input)?;
    if device.computes() {
        input.write(&exam.inputs)?;
    }
    let input = Tensor::from_array(input);
    // The first product makes the libraries' workspaces.
    drop(forward(&network, form, &input)?);
    device.reset_peak_stats();
    let outputs = forward(&network, form, &input)?;
    let peak = device.usage().at_peak();
    let inference_peak_bytes = peak.allocated_bytes - peak.by_category[Category::Workspace as usize];
    let (outputs, times) = if device.computes() {
        (outputs.to_vec::<f32>()?, timed(&device, &network, form, &input)?)
    } else {
        (Vec::new(), Times::default())
    };
    let foreseen = (predictable && undisturbed(&device)).then(|| foreseen(form, layers, examples)).flatten();
    Ok(Trial { form, weights_bytes, conversion_peak_bytes, inference_peak_bytes, foreseen, outputs, times })
}

fn loaded(device: &Device, layers: &[HostLayer]) -> Result<Vec<Layer>> {
    let parameter = |dims: &[usize], values: &[f32]| -> Result<Tensor> {
        let array = Array::empty_as(device, dims, DType::F32, Category::Parameter)?;
        if device.computes() {
            array.write(values)?;
        }
        Ok(Tensor::from_array(array))
    };
    let layer = |layer: &HostLayer| {
        let weight = Weight::Float(parameter(&[layer.outputs, layer.inputs], &layer.weight)?);
        Ok(Layer { weight, bias: parameter(&[layer.outputs], &layer.bias)? })
    };
    layers.iter().map(layer).collect()
}

impl Layer {
    /// Converts the weight to int8. The float weight is freed when the int8 weight exists.
    fn quantize(&mut self) -> Result<()> {
        if let Weight::Float(weight) = &self.weight {
            let QuantizedInt8 { values, scale } = ops::quantize_int8(weight.array())?;
            let (values, scale) = (values.with_category(Category::Parameter), scale.with_category(Category::Parameter));
            self.weight = Weight::Int8(QuantizedInt8 { values, scale });
        }
        Ok(())
    }

    fn apply(&self, x: &Tensor, form: Form) -> Result<Tensor> {
        Ok(match &self.weight {
            Weight::Float(weight) => ops::linear(x, weight, Some(&self.bias))?,
            Weight::Int8(weight) if form == Form::Int8Ahead => {
                let float = Tensor::from_array(ops::dequantize_int8(weight, DType::F32)?);
                ops::linear(x, &float, Some(&self.bias))?
            }
            Weight::Int8(weight) => Tensor::from_array(ops::matmul_int8(x.array(), weight, Some(self.bias.array()))?),
        })
    }
}

/// Runs a forward pass. Each result is freed when the next one exists.
fn forward(network: &[Layer], form: Form, input: &Tensor) -> Result<Tensor> {
    let mut x = input.clone();
    for (number, layer) in network.iter().enumerate() {
        x = layer.apply(&x, form)?;
        if number + 1 < network.len() {
            x = ops::relu(&x)?;
        }
    }
    Ok(x)
}

fn timed(device: &Device, network: &[Layer], form: Form, input: &Tensor) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        drop(forward(network, form, input)?);
        device.synchronize()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// Predicts from the sizes. `None` if a tensor is above 1 MiB, because the pool may add to it.
fn foreseen(form: Form, layers: &[HostLayer], examples: usize) -> Option<Foreseen> {
    let elements = layers.iter().flat_map(|l| [l.outputs * l.inputs, examples * l.outputs, examples * l.inputs]);
    if elements.max()? > 1 << 18 {
        return None;
    }
    let floats = |n: usize| rounded(4 * n as u64);
    let float = |l: &HostLayer| floats(l.outputs * l.inputs) + floats(l.outputs);
    let int8 = |l: &HostLayer| rounded((l.outputs * l.inputs) as u64) + 2 * floats(l.outputs);
    let held = |l: &HostLayer| if form == Form::Float32 { float(l) } else { int8(l) };
    let weights_bytes: u64 = layers.iter().map(held).sum();
    // Converts layer by layer: earlier layers are in int8, later ones in float, and this layer in both forms.
    let both = |i: usize| {
        let before: u64 = layers[..i].iter().map(int8).sum();
        let rest: u64 = layers[i..].iter().map(float).sum();
        before + rest + int8(&layers[i]) - floats(layers[i].outputs)
    };
    let conversion_peak_bytes = match form {
        Form::Float32 => weights_bytes,
        _ => (0..layers.len()).map(both).max()?,
    };
    let input = floats(examples * layers[0].inputs);
    let mut most = 0;
    for (i, layer) in layers.iter().enumerate() {
        // A layer's input is a tensor of its own, except for the network's input.
        let before = if i > 0 { floats(examples * layer.inputs) } else { 0 };
        let result = floats(examples * layer.outputs);
        let ahead = if form == Form::Int8Ahead { floats(layer.outputs * layer.inputs) } else { 0 };
        let activated = if i + 1 < layers.len() { 2 * result } else { 0 };
        most = most.max(before + ahead + result).max(activated);
    }
    Some(Foreseen { weights_bytes, conversion_peak_bytes, inference_peak_bytes: weights_bytes + input + most })
}
