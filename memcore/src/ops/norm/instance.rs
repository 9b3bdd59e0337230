//! Instance normalisation.

use super::batch::batch_norm;
use super::batch_kernels::BatchNormOptions;
use crate::autograd::Tensor;
use crate::context;
use crate::error::{Error, Result};
use crate::ops::shape::view::{contiguous, repeat, view};

/// Normalises each channel of each sample of `x` `[n, c, ..]` by itself, then multiplies by weight and adds bias (`[c]` each). As in PyTorch it is a batch
/// normalisation of one sample with `n·c` channels, whose parameters are repeated.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit; errors of the device.
pub fn instance_norm(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let [n, c, rest @ ..] = x.dims() else {
        return Err(Error::shape("instance_norm", format!("{:?}: expected two dimensions or more", x.dims())));
    };
    let _op = context::op("instance_norm");
    let repeated = |parameter: Option<&Tensor>| parameter.map(|parameter| repeat(parameter, &[*n])).transpose();
    let (weight, bias) = (repeated(weight)?, repeated(bias)?);
    let dims: Vec<usize> = [1, n * c].into_iter().chain(rest.iter().copied()).collect();
    let x_of_one = view(&contiguous(x)?, &dims)?;
    let options = BatchNormOptions { training: true, momentum: 0.0, eps };
    let y = batch_norm(&x_of_one, weight.as_ref(), bias.as_ref(), None, options)?;
    view(&y, x.dims())
}
