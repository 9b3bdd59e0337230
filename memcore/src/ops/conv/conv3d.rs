//! Convolution of volumes, `[n, c, d, h, w]`. Predicted only: the memory is PyTorch's, and no values are computed.
//!
//! Without cuDNN PyTorch multiplies the columns of one sample after the other (`slow_conv_dilated3d`), whatever the window.

use smallvec::smallvec;

use super::algorithm::{group_copy, group_of};
use super::library::workspace;
use super::record::recorded;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::device::WorkspaceKind;
use crate::error::{Error, Result};
use crate::ops::predicted::predicted_only;
use crate::profile::Convolution;

/// Options of a convolution over volumes: along depth, height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv3dGeometry {
    /// Elements from one window to the next.
    pub stride: [usize; 3],
    /// Zeros added on each side.
    pub padding: [usize; 3],
    /// Distance between neighbouring elements of a window.
    pub dilation: [usize; 3],
    /// Number of channel groups, each of which is convolved by itself.
    pub groups: usize,
}

impl Conv3dGeometry {
    /// Size of the result for sizes of the input and of the window.
    ///
    /// # Errors
    /// [`Error::Shape`] if no window fits.
    pub(in crate::ops) fn output_size(&self, size: &[usize], window: &[usize]) -> Result<[usize; 3]> {
        let mut out = [0; 3];
        for (axis, out) in out.iter_mut().enumerate() {
            let reach = self.dilation[axis] * window[axis].saturating_sub(1) + 1;
            let room = (size[axis] + 2 * self.padding[axis]).checked_sub(reach);
            let (Some(room), true) = (room, self.stride[axis] > 0) else {
                return Err(Error::shape("conv3d", format!("windows of {window:?} in {size:?} with {self:?}")));
            };
            *out = room / self.stride[axis] + 1;
        }
        Ok(out)
    }
}

/// Refuses what is not recorded: with cuDNN, and one filter group per channel, for which PyTorch has another kernel.
pub(in crate::ops) fn check_library(op: &'static str, x: &Tensor, channels: usize, groups: usize) -> Result<()> {
    predicted_only(op, x.device())?;
    if let Convolution::Cudnn { .. } = x.device().profile().convolution {
        return Err(Error::invalid(op, "vramlab does not support it with cuDNN"));
    }
    if groups > 1 && groups == channels {
        return Err(Error::invalid(op, "one group for each channel is not supported"));
    }
    Ok(())
}

/// `weight ⋆ x + bias`: `[n, c, d, h, w]` and `[o, c/groups, kd, kh, kw]` give `[n, o, od, oh, ow]`. Saves input and weight. Predicted only.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; [`Error::Invalid`] on a device that computes, and for what is not supported; errors of the device.
pub fn conv3d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, geometry: Conv3dGeometry) -> Result<Tensor> {
    let ([n, c, size @ ..], [o, wc, window @ ..]) = (x.dims(), weight.dims()) else {
        return Err(Error::shape("conv3d", format!("input {:?}, weight {:?}", x.dims(), weight.dims())));
    };
    let fits = size.len() == 3 && window.len() == 3 && *c == wc * geometry.groups && o % geometry.groups.max(1) == 0;
    if !fits || bias.is_some_and(|bias| bias.dims() != [*o]) {
        let detail = format!("input {:?}, weight {:?}, {} groups", x.dims(), weight.dims(), geometry.groups);
        return Err(Error::shape("conv3d", detail));
    }
    check_library("conv3d", x, *c, geometry.groups)?;
    let [od, oh, ow] = geometry.output_size(size, window)?;
    let compute = |x: &Array, weight: &Array, _: Option<&Array>| forward(x, weight, geometry, &[*n, *o, od, oh, ow]);
    recorded("conv3d", [x, weight], bias, Volumes { geometry }, compute)
}

fn forward(x: &Array, weight: &Array, geometry: Conv3dGeometry, out: &[usize]) -> Result<Array> {
    let (input, filter) = (x.contiguous()?, weight.contiguous()?);
    let len = columns_of(&filter, &out[2..]);
    let y = if geometry.groups == 1 {
        one_group(&input, len, out)?
    } else {
        let mut part = out.to_vec();
        part[1] /= geometry.groups;
        let mut parts = Vec::new();
        for _ in 0..geometry.groups {
            let copy = group_copy(&input, geometry.groups)?;
            parts.push(one_group(&input, len, &part)?);
            drop(copy);
        }
        context::within("cat", || Array::empty(x.device(), out, x.dtype()))?
    };
    drop(workspace(x, weight, out)?);
    drop((filter, input));
    Ok(y)
}

/// Elements of the columns of one sample: a window for each position of the result.
fn columns_of(weight: &Array, positions: &[usize]) -> usize {
    weight.dims()[1..].iter().chain(positions).product()
}

/// Allocates the result of one group, and its temporaries.
fn one_group(x: &Array, columns: usize, out: &[usize]) -> Result<Array> {
    let y = context::within("slow_conv_dilated3d", || Array::empty(x.device(), out, x.dtype()))?;
    let columns = context::within("resize_", || Array::empty(x.device(), &[columns], x.dtype()))?;
    x.device().product_workspaces(WorkspaceKind::Gemm, out[0])?;
    drop(columns);
    Ok(y)
}

struct Volumes {
    geometry: Conv3dGeometry,
}

impl Function for Volumes {
    fn name(&self) -> &'static str {
        "ConvolutionBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let _op = context::op("convolution_backward");
        let (x, weight) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(Grads::new()) };
        let groups = self.geometry.groups;
        let (input, filter, grad) = (x.contiguous()?, weight.contiguous()?, grad.contiguous()?);
        let wanted = [needs.input(0), needs.input(1), needs.input(2)];
        let out = if groups == 1 {
            group_gradients([&input, &filter, &grad], 1, wanted)?
        } else {
            let mut parts = [const { Vec::new() }; 3];
            for _ in 0..groups {
                let (_grad, _x) = (group_copy(&grad, groups)?, group_copy(&input, groups)?);
                let made = group_gradients([&input, &filter, &grad], groups, wanted)?;
                parts.iter_mut().zip(made).for_each(|(parts, made)| parts.extend(made));
            }
            let joined = joined([&input, &filter, &grad], wanted)?;
            // PyTorch frees the parts of the bias first.
            parts.into_iter().rev().for_each(drop);
            joined
        };
        drop(workspace(&input, &filter, grad.dims())?);
        drop((filter, input, grad));
        drop((x, weight));
        saved.done();
        Ok(out)
    }
}

/// Allocates the gradients that the groups' parts are joined to.
fn joined([x, weight, grad]: [&Array; 3], [of_x, of_weight, of_bias]: [bool; 3]) -> Result<Grads> {
    let _op = context::op("cat");
    let bias = || Array::empty(grad.device(), &grad.dims()[1..2], grad.dtype());
    let x = of_x.then(|| x.empty_like()).transpose()?;
    let weight = of_weight.then(|| weight.empty_like()).transpose()?;
    Ok(smallvec![x, weight, of_bias.then(bias).transpose()?])
}

/// Allocates the gradients of one of `groups` groups, and their temporaries: for each sample the workspace of a product for each of the two gradients
/// that are wanted, and a sum over its positions, which is added to the bias gradient.
fn group_gradients(
    [x, weight, grad]: [&Array; 3],
    groups: usize,
    [of_x, of_weight, of_bias]: [bool; 3],
) -> Result<Grads> {
    let device = x.device();
    let input = of_x.then(|| group_of(x, groups)).transpose()?;
    let mut dims = weight.dims().to_vec();
    dims[0] /= groups;
    let filter = of_weight.then(|| Array::empty(device, &dims, x.dtype())).transpose()?;
    let bias = of_bias.then(|| Array::empty(device, &dims[..1], x.dtype())).transpose()?;
    let columns = columns_of(weight, &grad.dims()[2..]);
    let columns = context::within("resize_", || Array::empty(device, &[columns], x.dtype()))?;
    let products = usize::from(of_x) + usize::from(of_weight);
    for sample in 0..x.dims()[0] {
        if products > 0 {
            device.product_workspaces(WorkspaceKind::Gemm, products)?;
        }
        if of_bias {
            let part = grad.narrow(0, sample, 1)?.narrow(1, 0, dims[0])?;
            drop(part.reduce_made_by(Some("sum"), ReduceOp::Sum, &[0, 2, 3, 4], false)?);
        }
    }
    drop(columns);
    Ok(smallvec![input, filter, bias])
}
