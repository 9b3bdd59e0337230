//! Pooling: windows of a picture reduced to one value each.

use smallvec::smallvec;

use crate::array::{Array, Format};
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::backend::kernel::{Pool2d, Pool2dGeometry, Pool2dGrad, PoolOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::reduce::sums_and_extremes::mean_axes;

/// Largest element of each window: `[n, c, h, w]` gives `[n, c, oh, ow]`. Saves its input, as PyTorch does although it needs only the
/// sizes, and the position of each maximum (8 bytes per output element).
///
/// # Errors
/// [`Error::Shape`] if the windows do not fit; errors of the device.
pub fn max_pool2d(x: &Tensor, geometry: Pool2dGeometry) -> Result<Tensor> {
    max_pool("max_pool2d", x, geometry)
}

/// [`max_pool2d`] under the name of the operator that called it.
pub(in crate::ops) fn max_pool(op: &'static str, x: &Tensor, geometry: Pool2dGeometry) -> Result<Tensor> {
    let _outer = context::op(op);
    Ok(max_pool2d_with_indices(x, geometry)?.0)
}

/// [`max_pool2d`], and the place of each maximum in its picture (i64, without history).
///
/// # Errors
/// As [`max_pool2d`].
pub fn max_pool2d_with_indices(x: &Tensor, geometry: Pool2dGeometry) -> Result<(Tensor, Tensor)> {
    let dims = output_dims("max_pool2d", x, geometry)?;
    let op = context::op("max_pool2d_with_indices");
    let format = x.array().format();
    let y = Array::empty_in(x.device(), &dims, x.dtype(), format)?;
    let indices = Array::empty_in(x.device(), &dims, DType::I64, format)?;
    let input = x.array().in_format(format)?;
    x.device().launch(Pool2d {
        op: PoolOp::Max,
        geometry,
        x: input.as_row_major()?.operand(),
        out: y.as_row_major()?.operand(),
        indices: Some(indices.as_row_major()?.operand()),
    })?;
    drop(input);
    let y = record(y, &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("indices", &indices)?;
        let (name, op) = ("MaxPool2DWithIndicesBackward0", PoolOp::Max);
        Ok(Box::new(PoolBackward { name, op, geometry }))
    })?;
    drop(op);
    Ok((y, Tensor::from_array(indices)))
}

/// Mean of each window, padding counted: `[n, c, h, w]` gives `[n, c, oh, ow]`. Saves its input, as PyTorch does although it needs only the
/// sizes.
pub fn avg_pool2d(x: &Tensor, geometry: Pool2dGeometry) -> Result<Tensor> {
    averaged("avg_pool2d", "AvgPool2DBackward0", x, geometry)
}

/// Mean of equal parts. `output` is the number of parts (height, width): `[n, c, h, w]` gives `[n, c, output]`.
///
/// With `[1, 1]` it is a mean over the picture, as in PyTorch, and saves nothing. Otherwise it saves the input. The mean of a picture with innermost
/// channels is returned as a view whose gradient is a copy.
///
/// # Errors
/// [`Error::Shape`] where the parts are not of equal size (`h` and `w` must be multiples of `output`); errors of the device.
pub fn adaptive_avg_pool2d(x: &Tensor, output: [usize; 2]) -> Result<Tensor> {
    let [_, _, h, w] = *x.dims() else {
        return Err(Error::shape("adaptive_avg_pool2d", format!("{:?}: expected four dimensions", x.dims())));
    };
    if output.contains(&0) || h % output[0] != 0 || w % output[1] != 0 {
        let detail = format!("{h}×{w} does not divide into {output:?} equal parts");
        return Err(Error::shape("adaptive_avg_pool2d", detail));
    }
    if output == [1, 1] {
        let _op = context::op("adaptive_avg_pool2d");
        let y = mean_axes(x, &[2, 3], true)?;
        return if x.array().layout().is_channels_last() { as_strided(&y) } else { Ok(y) };
    }
    x.array().refuse_channels_last("adaptive_avg_pool2d")?;
    let window = [h / output[0], w / output[1]];
    let geometry = Pool2dGeometry { window, stride: window, padding: [0, 0] };
    averaged("adaptive_avg_pool2d>_adaptive_avg_pool2d", ADAPTIVE, x, geometry)
}

/// Views a mean, of one position per channel, in channels-last strides.
fn as_strided(x: &Tensor) -> Result<Tensor> {
    let c = x.dims()[1];
    let last = Layout::strided(x.dims(), &[c, 1, c, c])?;
    record(x.array().part(&last, 0)?, &[x], |_| Ok(Box::new(AsStridedBackward)))
}

struct AsStridedBackward;

impl Function for AsStridedBackward {
    fn name(&self) -> &'static str {
        "AsStridedBackward1"
    }

    /// PyTorch scatters the gradient into new memory of the base's size.
    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        if !grad.device().profile().torch_temporaries {
            return Ok(smallvec![Some(grad.clone())]);
        }
        let out = context::within("new_zeros>new_empty", || grad.empty_like())?;
        out.copy_(grad)?;
        Ok(smallvec![Some(out)])
    }
}

fn output_dims(op: &'static str, x: &Tensor, geometry: Pool2dGeometry) -> Result<[usize; 4]> {
    let [n, c, h, w] = *x.dims() else {
        return Err(Error::shape(op, format!("{:?}: expected four dimensions", x.dims())));
    };
    let [oh, ow] = geometry.output_size([h, w])?;
    Ok([n, c, oh, ow])
}

fn averaged(op: &'static str, name: &'static str, x: &Tensor, geometry: Pool2dGeometry) -> Result<Tensor> {
    let dims = output_dims(op, x, geometry)?;
    let _op = context::op(op);
    // The adaptive pooling resizes its result itself, after it made its input contiguous.
    let adaptive = name == ADAPTIVE;
    let format = x.array().format();
    let compute = || {
        let early = if adaptive { Some(x.array().contiguous()?) } else { None };
        let made_by = if adaptive { "resize_" } else { "" };
        let y = context::within(made_by, || Array::empty_in(x.device(), &dims, x.dtype(), format))?;
        let input = early.map_or_else(|| x.array().in_format(format), Ok)?.as_row_major()?;
        let (op, out) = (PoolOp::Average, y.as_row_major()?.operand());
        x.device().launch(Pool2d { op, geometry, x: input.operand(), out, indices: None })?;
        Ok(y)
    };
    let describe = |saved: &mut Recorder| {
        saved.save("self", x.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(PoolBackward { name, op: PoolOp::Average, geometry }))
    };
    record_inputs(&[x], describe, compute)
}

/// Name of the node of an adaptive pooling.
const ADAPTIVE: &str = "AdaptiveAvgPool2DBackward0";

struct PoolBackward {
    name: &'static str,
    op: PoolOp,
    geometry: Pool2dGeometry,
}

impl Function for PoolBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let x = saved.get(0)?;
        let indices = if self.op == PoolOp::Max { Some(saved.get(1)?) } else { None };
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let (op, made_by) = match (self.op, self.name) {
            (PoolOp::Max, _) => ("max_pool2d_with_indices_backward", ""),
            (_, ADAPTIVE) => ("_adaptive_avg_pool2d_backward", "zeros_like"),
            _ => ("avg_pool2d_backward", ""),
        };
        let _op = context::op(op);
        let format = x.format();
        let out = context::within(made_by, || x.empty_like_in(format))?;
        // PyTorch makes the input contiguous, although only its sizes are needed.
        let ordered = x.device().profile().torch_temporaries
            && self.name != ADAPTIVE
            && format == Format::RowMajor
            && !x.layout().is_contiguous();
        let input = if ordered { Some(context::within("contiguous>clone", || x.empty_like())?) } else { None };
        let grad = grad.in_format(format)?;
        let indices = indices.map(|indices| indices.as_row_major()).transpose()?;
        out.device().launch(Pool2dGrad {
            op: self.op,
            geometry: self.geometry,
            grad: grad.as_row_major()?.operand(),
            indices: indices.as_ref().map(Array::operand),
            out: out.as_row_major()?.operand(),
        })?;
        drop((grad, input));
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
