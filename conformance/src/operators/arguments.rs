//! Arguments of the operators, and the functions by which a case makes them.

use memcore::ops::{self, Conv2dGeometry, Interpolation, Pool2dGeometry, ResizedAxis};
use memcore::{Array, DType, Device, Result, Tensor};

/// A differentiable argument: its sizes and the range of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    pub(crate) dims: &'static [usize],
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Clone, Copy)]
pub(crate) struct OperatorCase {
    /// The operator, followed by a dot and the name of the variant.
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [Argument],
    pub(crate) call: fn(&[Tensor]) -> Result<Tensor>,
}

pub(crate) const fn case(
    name: &'static str,
    arguments: &'static [Argument],
    call: fn(&[Tensor]) -> Result<Tensor>,
) -> OperatorCase {
    OperatorCase { name, arguments, call }
}

/// Values of both signs.
pub(crate) const fn tensor(dims: &'static [usize]) -> Argument {
    Argument { dims, low: -1.0, high: 1.0 }
}

/// Values away from 0, where a function has a pole or a root.
pub(crate) const fn positive(dims: &'static [usize]) -> Argument {
    Argument { dims, low: 0.5, high: 1.5 }
}

pub(crate) const X: &[Argument] = &[tensor(&[3, 5])];
pub(crate) const SAME: &[Argument] = &[tensor(&[3, 5]), tensor(&[3, 5])];
pub(crate) const CUBE: &[Argument] = &[tensor(&[2, 3, 4])];
pub(crate) const IMAGE: &[Argument] = &[tensor(&[2, 4, 6, 6])];

pub(crate) fn indices(device: &Device, dims: &[usize], values: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(device, dims, values)
}

/// A mask from one byte per element.
pub(crate) fn mask(device: &Device, dims: &[usize], values: &[u8]) -> Result<Tensor> {
    let mask = Array::empty(device, dims, DType::Bool)?;
    mask.write(values)?;
    Ok(Tensor::from_array(mask))
}

pub(crate) const fn geometry(
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Conv2dGeometry {
    Conv2dGeometry { stride, padding, dilation, groups }
}

pub(crate) const fn window(window: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Pool2dGeometry {
    Pool2dGeometry { window, stride, padding }
}

/// What may be written over.
pub(crate) fn copied(x: &Tensor) -> Result<Tensor> {
    ops::mul_scalar(x, 1.5)
}

/// Several tensors as one vector: outputs and states.
pub(crate) fn flattened(parts: &[Tensor]) -> Result<Tensor> {
    let flat = parts.iter().map(|part| ops::reshape(part, &[part.numel()])).collect::<Result<Vec<Tensor>>>()?;
    ops::cat(&flat.iter().collect::<Vec<_>>(), 0)
}

/// The arguments from `first` on.
pub(crate) fn from(x: &[Tensor], first: usize) -> Vec<&Tensor> {
    x[first..].iter().collect()
}

pub(crate) const FRACTIONS: &[Argument] = &[Argument { dims: &[3, 5], low: 0.1, high: 0.9 }];

/// A constant of the sizes of `x`.
pub(crate) fn constant(x: &Tensor, value: f64) -> Result<Tensor> {
    Ok(Tensor::from_array(Array::full(x.device(), x.dims(), x.dtype(), value)?))
}

pub(crate) const VOLUME: &[Argument] = &[tensor(&[1, 2, 3, 4, 5])];

/// A volume in other sizes.
pub(crate) fn volume(x: &Tensor, mode: Interpolation) -> Result<Tensor> {
    ops::interpolate(x, &[5, 3, 8].map(|size| ResizedAxis { size, factor: None }), mode, false)
}
