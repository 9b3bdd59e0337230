//! DoRA: the lengths of a weight's rows are trained beside an adapter.

use super::projections::Projections;
use crate::array::Array;
use crate::autograd::{Tensor, autocast_dtype};
use crate::backend::kernel::{Conv2dGeometry, ReduceOp, UnaryOp};
use crate::dtype::DType;
use crate::error::Result;
use crate::nn::Module;
use crate::nn::init::Init;
use crate::nn::parameter::{Fill, Parameter};
use crate::ops;

/// The weight `[out, in]` and the bias of the layer that an adapter belongs to.
pub struct Base<'a> {
    /// Returns the weight.
    pub weight: &'a dyn Fn() -> Result<Array>,
    /// The bias.
    pub bias: Option<&'a Array>,
}

/// Makes the lengths, which begin with these values.
///
/// # Errors
/// Those of the device.
pub(super) fn magnitude(init: &Init, dims: &[usize], begin: impl FnOnce() -> Result<Vec<f32>>) -> Result<Parameter> {
    let init = init.at("lora_magnitude_vector").at("default");
    let magnitude = init.parameter("weight", dims, Fill::Constant(1.0))?;
    if init.device().computes() {
        magnitude.set(&begin()?)?;
    }
    Ok(magnitude)
}

/// The lengths of a matrix's rows, which have `inputs` values each.
pub(super) fn lengths(weight: &[f64], inputs: usize) -> Vec<f32> {
    let length = |row: &[f64]| row.iter().map(|value| value * value).sum::<f64>().sqrt() as f32;
    weight.chunks(inputs.max(1)).map(length).collect()
}

/// The input after the adapter's dropout, and the layer's own output if it is of that input.
///
/// # Errors
/// Those of the device.
fn dropped<'a>(maps: &Projections, x: &Tensor, own: &'a Tensor) -> Result<(Tensor, Option<&'a Tensor>)> {
    match maps.drops() {
        Some(dropout) => Ok((dropout.forward(x)?, None)),
        None => Ok((x.clone(), Some(own))),
    }
}

/// `DoraLinearLayer.forward`: the lengths of the rows of `weight + scaling · B A` divide the magnitudes, and have no gradient.
///
/// # Errors
/// Those of the device.
pub(super) fn linear(
    maps: &Projections,
    magnitude: &Parameter,
    own: &Tensor,
    x: &Tensor,
    base: &Base<'_>,
) -> Result<Tensor> {
    let (x, own) = dropped(maps, x, own)?;
    let product = {
        let identity = Tensor::from_array(identity(&x)?);
        let low = maps.down.forward(&identity)?;
        let product = maps.up.forward(&low)?;
        drop(low);
        ops::t(&product)?
    };
    let product = {
        let converted = ops::cast(&product, x.dtype())?;
        drop(product);
        converted
    };
    let weight = (base.weight)()?.cast(x.dtype())?;
    let lengths = {
        let scaled = product.array().affine(maps.scaling, 0.0)?;
        let sum = weight.add(&scaled)?;
        drop(scaled);
        of_rows(&sum)?
    };
    let ratio = {
        let ratio = ops::div(magnitude.tensor(), &Tensor::from_array(lengths.clone()))?;
        ops::view(&ratio, &[1, lengths.numel()])?
    };
    let high = maps.low_rank(x.clone())?;
    let own = match (own, base.bias) {
        (Some(own), Some(bias)) => ops::sub(own, &Tensor::from_array(bias.clone()))?,
        (Some(own), None) => own.clone(),
        (None, _) => ops::linear(&x, &Tensor::from_array(weight.clone()), None)?,
    };
    let less = ops::add_scalar(&ratio, -1.0)?;
    let left = ops::mul(&less, &own)?;
    drop(less);
    let right = ops::mul(&ratio, &high)?;
    let scaled = ops::mul_scalar(&right, maps.scaling)?;
    drop(right);
    let sum = ops::add(&left, &scaled)?;
    drop((left, scaled));
    // Names die in the order of their first assignment: `base_result` is an argument.
    drop((own, product, weight, lengths, ratio, high));
    Ok(sum)
}

/// `DoraConv2dLayer.forward`: as [`linear`], with lengths over all dimensions but that of the outputs.
///
/// # Errors
/// Those of the device.
pub(super) fn convolution(
    maps: &Projections,
    (magnitude, geometry): (&Parameter, Conv2dGeometry),
    own: &Tensor,
    x: &Tensor,
    base: &Base<'_>,
) -> Result<Tensor> {
    let (x, own) = dropped(maps, x, own)?;
    let weight = (base.weight)()?;
    let rank = maps.down.weight.array().dims()[0];
    let matrix = |parameter: &Parameter, dims: [usize; 2]| ops::view(parameter.tensor(), &dims);
    let (up, down) = (&maps.up.weight, &maps.down.weight);
    let product = {
        let (rows, columns) = (up.array().numel() / rank.max(1), down.array().numel() / rank.max(1));
        ops::matmul(&matrix(up, [rows, rank])?, &matrix(down, [rank, columns])?)?
    };
    let lengths = {
        let product = Tensor::from_array(product.array().reshape(weight.dims())?);
        let sum = summed(&Tensor::from_array(weight.clone()), &product, maps.scaling)?;
        of_all_but_the_first(sum.array())?
    };
    let ratio = ops::div(magnitude.tensor(), &Tensor::from_array(lengths.transpose(0, 1)?))?;
    let own = match (own, base.bias) {
        (Some(own), Some(bias)) => ops::sub(own, &Tensor::from_array(bias.view(&[1, bias.numel(), 1, 1])?))?,
        (Some(own), None) => own.clone(),
        (None, _) => ops::conv2d(&x, &Tensor::from_array(weight.clone()), None, geometry)?,
    };
    let less = ops::add_scalar(&ratio, -1.0)?;
    let left = ops::mul(&less, &own)?;
    drop(less);
    let high = maps.low_rank(x)?;
    let right = ops::mul(&ratio, &high)?;
    drop(high);
    let scaled = ops::mul_scalar(&right, maps.scaling)?;
    drop(right);
    let sum = ops::add(&left, &scaled)?;
    drop((left, scaled));
    drop((own, weight, product, lengths, ratio));
    Ok(sum)
}

/// `torch.linalg.norm(weight, dim=1).to(weight.dtype)`: under autocast a float32 norm of 16-bit values, which is converted.
///
/// # Errors
/// Those of the device.
pub(super) fn of_rows(weight: &Array) -> Result<Array> {
    let lengths = of_all_but_the_first(weight)?;
    let rows = lengths.view(&[lengths.numel()])?;
    drop(lengths);
    if rows.dtype() == weight.dtype() { Ok(rows) } else { rows.cast(weight.dtype()) }
}

/// The norms over all dimensions but the first, of which each keeps its place.
fn of_all_but_the_first(weight: &Array) -> Result<Array> {
    let axes: Vec<usize> = (1..weight.rank()).collect();
    if autocast_dtype().is_none() || !matches!(weight.dtype(), DType::F16 | DType::BF16) {
        let lengths = weight.reduce(ReduceOp::SumSquares, &axes, true)?;
        lengths.unary_(UnaryOp::Sqrt)?;
        return Ok(lengths);
    }
    let dims: Vec<usize> = (0..weight.rank()).map(|axis| if axis == 0 { weight.dims()[0] } else { 1 }).collect();
    let wide = Array::empty(weight.device(), &dims, DType::F32)?;
    if weight.device().computes() {
        let inputs = weight.numel() / weight.dims()[0].max(1);
        wide.write(&lengths(&weight.to_f64()?, inputs))?;
    }
    Ok(wide)
}

/// `weight + scaling * product`
///
/// # Errors
/// Those of the device.
pub(super) fn summed(weight: &Tensor, product: &Tensor, scaling: f64) -> Result<Tensor> {
    let scaled = ops::mul_scalar(product, scaling)?;
    ops::add(weight, &scaled)
}

/// `torch.eye` of as many rows as `x` has features.
fn identity(x: &Tensor) -> Result<Array> {
    let n = x.dims().last().copied().unwrap_or(1);
    let array = Array::empty(x.device(), &[n, n], x.dtype())?;
    if x.device().computes() {
        let values: Vec<f64> = (0..n * n).map(|place| f64::from(u8::from(place % (n + 1) == 0))).collect();
        array.write_values(&values)?;
    }
    Ok(array)
}
