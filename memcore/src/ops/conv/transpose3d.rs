//! Transposed convolution of volumes. Predicted only: the memory is PyTorch's without cuDNN (`slow_conv_transpose3d`), and no values are computed.

use smallvec::{SmallVec, smallvec};

use super::conv3d::{Conv3dGeometry, check_library};
use super::library::workspace;
use super::record::recorded;
use super::transposed_size::transposed_size;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::device::WorkspaceKind;
use crate::error::{Error, Result};

/// The transpose of a convolution with this geometry: `[n, c, d, h, w]` and `[c, o, kd, kh, kw]` give `[n, o, od, oh, ow]`, with `more` elements at the
/// ends. Saves input and weight. Predicted only.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; [`Error::Invalid`] on a device that computes, for several groups, and with cuDNN; errors of the device.
pub fn conv_transpose3d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: Conv3dGeometry,
    more: [usize; 3],
) -> Result<Tensor> {
    const OP: &str = "conv_transpose3d";
    let wrong = || Error::shape(OP, format!("input {:?}, weight {:?}, {geometry:?}", x.dims(), weight.dims()));
    let ([n, c, size @ ..], [wc, o, window @ ..]) = (x.dims(), weight.dims()) else { return Err(wrong()) };
    if c != wc || size.len() != 3 || window.len() != 3 || bias.is_some_and(|bias| bias.dims() != [*o]) {
        return Err(wrong());
    }
    check_library(OP, x, *c, 1)?;
    if geometry.groups != 1 {
        return Err(Error::invalid(OP, "several groups are not supported"));
    }
    let mut dims: SmallVec<[usize; 6]> = smallvec![*n, *o];
    for axis in 0..3 {
        let steps = [geometry.stride[axis], geometry.dilation[axis]];
        let size = transposed_size(size[axis], window[axis], steps, geometry.padding[axis], more[axis]);
        dims.push(size.ok_or_else(wrong)?);
    }
    if geometry.output_size(&dims[2..], window)? != size {
        return Err(wrong());
    }
    let compute = |x: &Array, weight: &Array, bias: Option<&Array>| forward(x, weight, bias.is_some(), &dims);
    recorded(OP, [x, weight], bias, Backward { geometry }, compute)
}

/// Elements of the columns of one sample.
fn columns(x: &Array, weight: &Array) -> Result<Array> {
    let len = weight.dims()[1..].iter().chain(&x.dims()[2..]).product();
    Array::empty(x.device(), &[len], x.dtype())
}

fn forward(x: &Array, weight: &Array, has_bias: bool, dims: &[usize]) -> Result<Array> {
    let y = x.empty_like()?.resized(dims)?;
    let (input, filter) = (x.contiguous()?, weight.contiguous()?);
    let columns = columns(&input, &filter)?;
    let ones = if has_bias { Some(Array::ones(x.device(), &dims[2..], x.dtype())?) } else { None };
    x.device().product_workspaces(WorkspaceKind::Gemm, dims[0] * if has_bias { 2 } else { 1 })?;
    drop(ones);
    drop(columns);
    drop(workspace(x, weight, dims)?);
    drop((filter, input));
    Ok(y)
}

struct Backward {
    geometry: Conv3dGeometry,
}

impl Function for Backward {
    fn name(&self) -> &'static str {
        "ConvolutionBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let _op = context::op("convolution_backward");
        let (x, weight) = (saved.get(0)?.contiguous()?, saved.get(1)?.contiguous()?);
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None, None];
        if needs.input(0) {
            let ordered = grad.contiguous()?;
            out[0] = Some(x.empty_like()?);
            let columns = self.columns(&x, &weight)?;
            x.device().product_workspaces(WorkspaceKind::Gemm, x.dims()[0])?;
            drop(columns);
            drop(workspace(&x, &weight, grad.dims())?);
            drop(ordered);
        }
        if needs.input(1) || needs.input(2) {
            out[1] = needs.input(1).then(|| weight.empty_like()).transpose()?;
            let bias = || Array::empty(x.device(), &grad.dims()[1..2], grad.dtype());
            out[2] = needs.input(2).then(bias).transpose()?;
            let ordered = grad.contiguous()?;
            let columns = if needs.input(1) { self.columns(&x, &weight)? } else { None };
            x.device().product_workspaces(WorkspaceKind::Gemm, x.dims()[0])?;
            if let Some(out) = &out[2] {
                context::within("sum", || ordered.reduce_over_into(ReduceOp::Sum, &[0, 2, 3, 4], out))?;
            }
            drop(columns);
            drop(workspace(&x, &weight, grad.dims())?);
            drop(ordered);
        }
        drop((x, weight));
        saved.done();
        Ok(out)
    }
}

impl Backward {
    /// Allocates the columns of one sample, unless they are the incoming gradient itself.
    fn columns(&self, x: &Array, weight: &Array) -> Result<Option<Array>> {
        let geometry = self.geometry;
        let is_plain = weight.dims()[2..] == [1; 3]
            && [geometry.stride, geometry.dilation] == [[1; 3]; 2]
            && geometry.padding == [0; 3];
        if is_plain { Ok(None) } else { columns(x, weight).map(Some) }
    }
}
