//! Normalisation over rows: layer norm and RMS norm.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{LayerNorm, LayerNormGrad, ReduceOp, RmsNorm, RmsNormGrad, UnaryOp};
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::pointwise::binary;
use crate::ops::pointwise::cast::cast;
use crate::ops::pointwise::unary;
use crate::ops::reduce::sums_and_extremes;

/// `(x − mean)/√(var + eps)·weight + bias` over the last `normalized.len()` dimensions, whose sizes must be `normalized`. Weight and
/// bias have that shape. Saves its input, weight and bias, and mean and reciprocal deviation of each row in the accumulator type.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit; errors of the device.
pub fn layer_norm(
    x: &Tensor,
    normalized: &[usize],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let rows = Rows::new("layer_norm", x, normalized, &[weight, bias])?;
    let _outer = context::op("layer_norm");
    let bias = bias.map(full).transpose()?;
    let weight = weight.map(full).transpose()?;
    let (x, weight, bias) = (&full(x)?, weight.as_ref(), bias.as_ref());
    let op = context::op("native_layer_norm");
    let input = x.array().contiguous()?;
    let y = input.empty_like()?;
    let mean = Array::empty(x.device(), &[rows.count], x.dtype().accumulator())?;
    let rstd = mean.empty_like()?;
    let (w, b) = (rows.parameter(weight)?, rows.parameter(bias)?);
    x.device().launch(LayerNorm {
        eps,
        x: rows.as_rows(&input)?.operand(),
        weight: w.as_ref().map(Array::operand),
        bias: b.as_ref().map(Array::operand),
        out: rows.as_rows(&y)?.operand(),
        mean: mean.operand(),
        rstd: rstd.operand(),
    })?;
    drop(input);
    drop(op);
    let (inputs, slots) = present(x, &[weight, bias]);
    let y = record(y, &inputs, |saved| {
        // Saved in the order in which the node frees them. No gradient needs the bias, but PyTorch keeps it all the same: as a copy of its own if
        // autocast made one.
        if let Some(bias) = bias {
            saved.save("bias", bias.array())?;
        }
        saved.save("input", x.array())?;
        if let Some(weight) = weight {
            saved.save("weight", weight.array())?;
        }
        saved.save("mean", &mean)?;
        saved.save("rstd", &rstd)?;
        Ok(Box::new(LayerNormBackward { rows, slots, normalized: normalized.into() }))
    });
    // If no node saved them, they are freed in this order.
    drop((mean, rstd));
    y
}

/// Most rows for which PyTorch's layer norm sums the parameters' gradients in one step. Above, it uses two steps.
const MANY_ROWS: usize = 64 * 1024;

/// Threads side by side, which is also the number of rows in a partial sum.
const WARP: usize = 32;

/// Most blocks of threads in the first of the two steps.
const MAX_BLOCKS: usize = 32 * 1024;

/// An input seen as rows.
#[derive(Clone, Copy)]
struct Rows {
    count: usize,
    len: usize,
}

impl Rows {
    fn new(op: &'static str, x: &Tensor, normalized: &[usize], parameters: &[Option<&Tensor>]) -> Result<Self> {
        let lead = x.rank().checked_sub(normalized.len()).filter(|&l| &x.dims()[l..] == normalized);
        let fits = parameters.iter().flatten().all(|p| p.dims() == normalized);
        let Some(lead) = lead.filter(|_| fits && !normalized.is_empty()) else {
            let parameters: Vec<_> = parameters.iter().flatten().map(|p| p.dims()).collect();
            let detail = format!("{:?} over {normalized:?}, parameters {parameters:?}", x.dims());
            return Err(Error::shape(op, detail));
        };
        Ok(Self { count: x.dims()[..lead].iter().product(), len: normalized.iter().product() })
    }

    /// True if PyTorch's kernel makes the parameters' gradients as sums over parts of the rows: if there are many short rows for the card.
    fn has_partial_sums(&self, device: &Device) -> bool {
        let card = device.profile().multiprocessors.filter(|_| device.profile().torch_temporaries);
        card.is_some_and(|card| self.count > MANY_ROWS && self.len / WARP < card.count / 2)
    }

    /// `x` as `[rows, n]`.
    fn as_rows(&self, x: &Array) -> Result<Array> {
        x.view(&[self.count, self.len])
    }

    /// A parameter as `[n]`.
    fn parameter(&self, parameter: Option<&Tensor>) -> Result<Option<Array>> {
        parameter.map(|p| p.array().reshape(&[self.len])).transpose()
    }
}

/// Returns the inputs that exist, and for each of `optional` its place among them (0 is `x`'s).
pub(in crate::ops) fn present<'a>(
    x: &'a Tensor,
    optional: &[Option<&'a Tensor>; 2],
) -> (SmallVec<[&'a Tensor; 3]>, [Option<usize>; 2]) {
    let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![x];
    let mut slots = [None; 2];
    for (slot, tensor) in slots.iter_mut().zip(optional) {
        if let Some(tensor) = tensor {
            *slot = Some(inputs.len());
            inputs.push(tensor);
        }
    }
    (inputs, slots)
}

/// Memory for the required gradients, in the order input, weight, bias.
struct NormGrads {
    x: Option<Array>,
    parameters: [Option<Array>; 2],
}

impl NormGrads {
    /// Allocates the gradients. Those of parameters have `dims` and a type of their own.
    fn new(x: &Array, dims: &[usize], parameter: DType, slots: [Option<usize>; 2], needs: Needs<'_>) -> Result<Self> {
        let input = if needs.input(0) { Some(x.empty_like()?) } else { None };
        let mut parameters = [None, None];
        for (slot, out) in slots.iter().zip(&mut parameters) {
            if slot.is_some_and(|slot| needs.input(slot)) {
                *out = Some(Array::empty(x.device(), dims, parameter)?);
            }
        }
        Ok(Self { x: input, parameters })
    }

    /// Makes PyTorch's temporaries for the required gradients of parameters: one gradient of each part of the rows, whose sum replaces the
    /// gradient allocated before. Our kernel sums all rows in one call, into that memory.
    fn by_partial_sums(&mut self, rows: Rows) -> Result<()> {
        // As many parts as the grid has blocks for each column of threads.
        let parts = rows.count.div_ceil(WARP).min(MAX_BLOCKS / rows.len.div_ceil(WARP).max(1));
        let part = |gradient: &Array| Array::empty(gradient.device(), &[parts, rows.len], gradient.dtype());
        let of = |gradient: &Option<Array>| gradient.as_ref().map(part).transpose();
        let parts = [of(&self.parameters[0])?, of(&self.parameters[1])?];
        for (gradient, part) in self.parameters.iter_mut().zip(&parts) {
            if let Some(part) = part {
                let sum = context::within("sum", || part.reduce(ReduceOp::Sum, &[0], false))?;
                *gradient = Some(sum);
            }
        }
        let [weight, bias] = parts;
        drop(bias);
        drop(weight);
        Ok(())
    }

    fn none_wanted(&self) -> bool {
        self.x.is_none() && self.parameters.iter().all(Option::is_none)
    }

    /// Returns one gradient per existing input.
    fn into_grads(self, slots: [Option<usize>; 2]) -> Grads {
        let mut out: Grads = smallvec![self.x];
        for (slot, parameter) in slots.into_iter().zip(self.parameters) {
            if slot.is_some() {
                out.push(parameter);
            }
        }
        out
    }
}

struct LayerNormBackward {
    rows: Rows,
    slots: [Option<usize>; 2],
    normalized: SmallVec<[usize; 2]>,
}

impl Function for LayerNormBackward {
    fn name(&self) -> &'static str {
        "NativeLayerNormBackward0"
    }

    /// One kernel makes all three gradients.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (first, weighted) = (usize::from(self.slots[1].is_some()), usize::from(self.slots[0].is_some()));
        let x = saved.get(first)?;
        let weight = if weighted == 1 { Some(saved.get(first + 1)?) } else { None };
        let (mean, rstd) = (saved.get(first + weighted + 1)?, saved.get(first + weighted + 2)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("native_layer_norm_backward");
        let x = x.contiguous()?;
        let mut out = NormGrads::new(&x, &self.normalized, x.dtype(), self.slots, needs)?;
        if out.none_wanted() {
            return Ok(out.into_grads(self.slots));
        }
        let grad = grad.contiguous()?;
        if self.rows.has_partial_sums(x.device()) {
            out.by_partial_sums(self.rows)?;
        }
        let rows = |a: &Array| self.rows.as_rows(a).map(|a| a.operand());
        let row = |a: &Option<Array>| a.as_ref().map(|a| a.reshape(&[self.rows.len])).transpose();
        let (weight, dw, db) = (row(&weight)?, row(&out.parameters[0])?, row(&out.parameters[1])?);
        x.device().launch(LayerNormGrad {
            grad: rows(&grad)?,
            x: rows(&x)?,
            mean: mean.operand(),
            rstd: rstd.operand(),
            weight: weight.as_ref().map(Array::operand),
            out_x: out.x.as_ref().map(rows).transpose()?,
            out_weight: dw.as_ref().map(Array::operand),
            out_bias: db.as_ref().map(Array::operand),
        })?;
        saved.done();
        Ok(out.into_grads(self.slots))
    }
}

/// `x/√(mean(x²) + eps)·weight` over the last `normalized.len()` dimensions, whose sizes must be `normalized`. The weight has that
/// shape. Saves its input, the weight, and the reciprocal root of each row in the accumulator type.
///
/// If the weight has another type, and under the profile of a release that has no kernel for it, it is not one kernel. As in PyTorch, it is then
/// composed of operators in the accumulator type, and saves what they save. The [profile](crate::profile::Profile::autocasts_rms_norm) says whether
/// autocast runs it in float32.
pub fn rms_norm(x: &Tensor, normalized: &[usize], weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let rows = Rows::new("rms_norm", x, normalized, &[weight])?;
    let _outer = context::op("rms_norm");
    let casts = x.device().profile().autocasts_rms_norm;
    let given = |t: &Tensor| if casts { full(t) } else { Ok(t.clone()) };
    let weight = weight.map(given).transpose()?;
    let (x, weight) = (&given(x)?, weight.as_ref());
    let composed = x.device().profile().composes_rms_norm;
    if composed || weight.is_some_and(|weight| weight.dtype() != x.dtype()) {
        return composed_rms_norm(x, normalized, weight, eps);
    }
    let op = context::op("_fused_rms_norm");
    let input = x.array().contiguous()?;
    let y = input.empty_like()?;
    let rstd = Array::empty(x.device(), &[rows.count], x.dtype().accumulator())?;
    let w = rows.parameter(weight)?;
    x.device().launch(RmsNorm {
        eps,
        x: rows.as_rows(&input)?.operand(),
        weight: w.as_ref().map(Array::operand),
        out: rows.as_rows(&y)?.operand(),
        rstd: rstd.operand(),
    })?;
    drop((w, input));
    let (inputs, slots) = present(x, &[weight, None]);
    let y = record(y, &inputs, |saved| {
        saved.save("input", x.array())?;
        saved.save("rstd", &rstd)?;
        if let Some(weight) = weight {
            saved.save("weight", weight.array())?;
        }
        Ok(Box::new(RmsNormBackward { rows, slots, normalized: normalized.into() }))
    });
    // A recomputation that stops while values are saved frees the result inside the operator. Values that no node saved are freed after it.
    drop(op);
    drop(rstd);
    y
}

/// RMS normalisation composed of operators. The mean of the squares is shifted by `eps` in place.
fn composed_rms_norm(x: &Tensor, normalized: &[usize], weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let wide = cast(x, x.dtype().accumulator())?;
    let axes: SmallVec<[usize; 4]> = (x.rank() - normalized.len()..x.rank()).collect();
    let rstd = {
        let squares = unary::pow(&wide, 2.0)?;
        let mean = sums_and_extremes::mean_axes(&squares, &axes, true)?;
        mean.array().unary_(UnaryOp::Affine { mul: 1.0, add: eps })?;
        unary::rsqrt(&mean)?
    };
    // Releases that have a kernel free it last.
    let _last = (!x.device().profile().composes_rms_norm).then(|| rstd.clone());
    let normal = binary::mul(&wide, &rstd)?;
    let scaled = match weight {
        Some(weight) => binary::mul(&normal, weight)?,
        None => normal.clone(),
    };
    drop(normal);
    drop(rstd);
    drop(wide);
    let _op = context::op("type_as");
    cast(&scaled, x.dtype())
}

struct RmsNormBackward {
    rows: Rows,
    slots: [Option<usize>; 2],
    normalized: SmallVec<[usize; 2]>,
}

impl Function for RmsNormBackward {
    fn name(&self) -> &'static str {
        "FusedRmsNormBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (x, rstd) = (saved.get(0)?, saved.get(1)?);
        let weight = if self.slots[0].is_some() { Some(saved.get(2)?) } else { None };
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("_fused_rms_norm_backward");
        let x = x.contiguous()?;
        let out = NormGrads::new(&x, &self.normalized, x.dtype(), self.slots, needs)?;
        if out.none_wanted() {
            return Ok(out.into_grads(self.slots));
        }
        let grad = grad.contiguous()?;
        let rows = |a: &Array| self.rows.as_rows(a).map(|a| a.operand());
        let row = |a: &Option<Array>| a.as_ref().map(|a| a.reshape(&[self.rows.len])).transpose();
        let (weight, dw) = (row(&weight)?, row(&out.parameters[0])?);
        x.device().launch(RmsNormGrad {
            grad: rows(&grad)?,
            x: rows(&x)?,
            rstd: rstd.operand(),
            weight: weight.as_ref().map(Array::operand),
            out_x: out.x.as_ref().map(rows).transpose()?,
            out_weight: dw.as_ref().map(Array::operand),
        })?;
        saved.done();
        Ok(out.into_grads(self.slots))
    }
}
