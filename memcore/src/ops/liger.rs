//! Kernels of Liger, as the memory that they take: `liger_kernel` 0.8.5. No device here computes them.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record, record_many};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// `x` as rows of its last dimension: how many, and their length.
fn rows(x: &Array) -> [usize; 2] {
    let columns = x.dims().last().copied().unwrap_or(1);
    [x.numel() / columns.max(1), columns]
}

fn not_computed(device: &Device) -> Result<()> {
    match device.computes() {
        true => Err(Error::invalid("liger", "no backend has Liger's kernels: --backend meta predicts their memory")),
        false => Ok(()),
    }
}

/// `LigerRMSNormFunction` in the casting modes of Llama and Gemma: it saves `x`, the weight, and one float32 for each row. The gradient of `x` stands where that of
/// the result was.
///
/// # Errors
/// [`Error::Invalid`] on a device with values; those of the device.
pub fn liger_rms_norm(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let _op = context::op("LigerRMSNormFunction");
    not_computed(x.device())?;
    let input = x.array().contiguous()?;
    let [count, columns] = rows(&input);
    let y = Array::empty(x.device(), &[count, columns], x.dtype())?;
    let roots = Array::empty(x.device(), &[count], DType::F32)?;
    record(y.view(x.dims())?.keeping_base(), &[x, weight], |saved| {
        saved.save("X", &input)?;
        saved.save("W", weight.array())?;
        saved.save("RSTD", &roots)?;
        Ok(Box::new(RmsNorm))
    })
}

struct RmsNorm;

impl Function for RmsNorm {
    fn name(&self) -> &'static str {
        "LigerRMSNormFunctionBackward"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(smallvec![None, None]) };
        let grad = grad.contiguous()?;
        let (weight, columns) = (saved.get(1)?, rows(&grad)[1]);
        let of_weight = needs.input(1).then(|| {
            let card = grad.device().profile().multiprocessors.map_or(1, |card| card.count);
            let parts = Array::empty(grad.device(), &[card, columns], DType::F32)?;
            let sum = context::within("sum", || parts.reduce(ReduceOp::Sum, &[0], false))?;
            let narrow = sum.dtype() != weight.dtype();
            if narrow { context::within("to>_to_copy", || sum.cast(weight.dtype())) } else { Ok(sum) }
        });
        let of_weight = of_weight.transpose()?;
        saved.done();
        Ok(smallvec![Some(grad.keeping_base()), of_weight])
    }
}

/// `LigerSiLUMulFunction` and `LigerGELUMulFunction`: it saves both operands, and writes their gradients over them.
///
/// # Errors
/// [`Error::Invalid`] on a device with values; those of the device.
pub fn liger_gated(gate: &Tensor, up: &Tensor, name: &'static str) -> Result<Tensor> {
    let _op = context::op(name);
    not_computed(gate.device())?;
    let (a, b) = (gate.array().contiguous()?, up.array().contiguous()?);
    let c = Array::empty(gate.device(), &rows(&a), gate.dtype())?;
    record(c.view(gate.dims())?.keeping_base(), &[gate, up], |saved| {
        saved.save("a", &a)?;
        saved.save("b", &b)?;
        Ok(Box::new(Gated))
    })
}

struct Gated;

impl Function for Gated {
    fn name(&self) -> &'static str {
        "LigerGLUMulFunctionBackward"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(smallvec![None, None]) };
        let grad = grad.contiguous()?;
        let (a, b) = (saved.get(0)?, saved.get(1)?);
        drop(grad);
        saved.done();
        Ok(smallvec![Some(a.keeping_base()), Some(b.keeping_base())])
    }
}

/// `LigerRopeFunction` of queries and keys `[batch, heads, time, head]`, which are rotated where they are if each position's heads lie beside each other.
///
/// # Errors
/// [`Error::Invalid`] on a device with values; those of the device.
pub fn liger_rope([q, k]: [&Tensor; 2], [cos, sin]: [&Tensor; 2]) -> Result<[Tensor; 2]> {
    let _op = context::op("LigerRopeFunction");
    not_computed(q.device())?;
    let rotated = [turned(q.array())?, turned(k.array())?];
    let (cos, sin) = (cos.array().contiguous()?, sin.array().contiguous()?);
    let both = record_many(rotated.into(), &[q, k], |saved| {
        saved.save("cos", &cos)?;
        saved.save("sin", &sin)?;
        Ok(Box::new(Rope))
    })?;
    <[Tensor; 2]>::try_from(both).map_err(|_| Error::invalid("liger", "other than two results"))
}

/// In the memory of `x`, or of a copy in which each position's heads lie beside each other.
fn turned(x: &Array) -> Result<Array> {
    Ok(x.transpose(1, 2)?.contiguous()?.transpose(1, 2)?.keeping_base())
}

struct Rope;

impl Function for Rope {
    fn name(&self) -> &'static str {
        "LigerRopeFunctionBackward"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        // Both copies are made before one of the originals is freed.
        let turned = grads.iter().map(|grad| grad.as_ref().map(turned).transpose()).collect::<Result<Grads>>()?;
        drop(grads);
        saved.done();
        Ok(turned)
    }
}
