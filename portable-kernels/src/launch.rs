//! Translation of a call to launches on a device.

use memcore::backend::kernel::{AttentionGrad, LayerNormGrad, RmsNormGrad};
use memcore::backend::{Access, KernelCall, Operand, Region};
use memcore::{DType, Error, Result};

use crate::arguments::{Arguments, OPERANDS};
use crate::program::{Program, find};

/// Operands by their position among the kernel's operands.
type Operands = [Option<Operand>; OPERANDS];

/// Operands that all tensors of a list share; the others come once per tensor.
const SHARED: [&str; 2] = ["inv_scale", "found_inf"];

/// A launch of one function of a program over a number of work items.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program to compile.
    pub program: Program,
    /// The function's name in it. It takes [`arguments`](Self::arguments) by value, then a buffer for each of [`regions`](Self::regions).
    pub function: &'static str,
    /// Number of work items, at least one; surplus ones do nothing.
    pub items: u64,
    /// The arguments by value. They include the offset of each operand in its buffer.
    pub arguments: Arguments,
    regions: [Option<Region>; OPERANDS],
    buffers: usize,
}

impl Launch {
    /// The region of each buffer. The device passes the beginning of the region's buffer. `None` for a buffer that is
    /// neither read nor written (pass a null pointer, or any other).
    pub fn regions(&self) -> &[Option<Region>] {
        &self.regions[..self.buffers]
    }
}

/// True if there is a launch for such a call: sizes and strides are below 2³², and not more than the arguments can
/// hold.
pub fn supports(call: &KernelCall) -> bool {
    let mut fits = true;
    each_list(call, &mut |operands| {
        fits &= Arguments::from_call(call, operands, call.dtype()).is_some();
        Ok(())
    })
    .is_ok()
        && fits
}

/// Calls `run` with each launch of a call, in order; never if there is nothing to do.
///
/// # Errors
/// The first error of `run`; [`Error::Unsupported`] for a call that is not [supported](supports).
pub fn each_launch(call: &KernelCall, run: &mut dyn FnMut(&Launch) -> Result<()>) -> Result<()> {
    each_list(call, &mut |operands| {
        let dtype = computes_in(call, operands);
        let missing = || Error::Unsupported { backend: "portable".into(), kernel: call.name(), dtype: call.dtype() };
        let mut arguments = Arguments::from_call(call, operands, dtype).ok_or_else(missing)?;
        let regions = operands.map(|operand| operand.filter(|o| o.region.len > 0).map(|o| o.region));
        each_step(call, operands, &mut |function, items| {
            if items == 0 {
                return Ok(());
            }
            arguments.items = items as u64;
            let (program, function, buffers) = find(function, dtype).ok_or_else(missing)?;
            run(&Launch { program, function, items: items as u64, arguments, regions, buffers })
        })
    })
}

/// The type in which a call's program computes. Calls that only move elements take the elements' type; each tensor of a
/// list has its own.
fn computes_in(call: &KernelCall, operands: &Operands) -> DType {
    match call {
        KernelCall::Select(k) => k.out.dtype,
        KernelCall::DequantizeInt8(k) => k.out.dtype,
        KernelCall::Softmax(k) => wider(k.x.dtype, k.out.dtype),
        KernelCall::SoftmaxGrad(k) => wider(k.y.dtype, k.out.dtype),
        _ => operands[0].map_or_else(|| call.dtype(), |first| first.dtype),
    }
}

fn wider(a: DType, b: DType) -> DType {
    a.promoted(b).unwrap_or(a)
}

/// Calls `f` with the operands by position: once, or once per tensor of a list.
fn each_list(call: &KernelCall, f: &mut dyn FnMut(&Operands) -> Result<()>) -> Result<()> {
    let names = call.operand_names();
    let mut shared: Operands = [None; OPERANDS];
    call.each_operand(&mut |name, _, operand| {
        if SHARED.contains(&name)
            && let Some(place) = place(names, name)
        {
            shared[place] = Some(*operand);
        }
    });
    let (mut current, mut outcome) = (shared, Ok(()));
    call.each_operand(&mut |name, access, operand| {
        let Some(place) = place(names, name).filter(|_| access != Access::Workspace && !SHARED.contains(&name)) else {
            return;
        };
        // The first operand of a tensor appears again: the next tensor begins.
        if current[place].is_some() && place == 0 && outcome.is_ok() {
            outcome = f(&current);
            current = shared;
        }
        current[place] = Some(*operand);
    });
    outcome?;
    // An empty list has only its shared operands.
    if current[0].is_some()
        || !matches!(call, KernelCall::SgdStep(_) | KernelCall::AdamStep(_) | KernelCall::Unscale(_))
    {
        f(&current)?;
    }
    Ok(())
}

fn place(names: &[&str], name: &str) -> Option<usize> {
    names.iter().position(|other| *other == name)
}

/// Calls `f` with each function of a call and its number of work items.
fn each_step(
    call: &KernelCall,
    operands: &Operands,
    f: &mut dyn FnMut(&'static str, usize) -> Result<()>,
) -> Result<()> {
    use KernelCall as K;
    let first = operands[0].map_or(0, |operand| operand.numel());
    let items = match call {
        // Groups along the middle of three dimensions.
        K::Softmax(k) => k.x.dims()[0] * k.x.dims()[2],
        K::SoftmaxGrad(k) => k.y.dims()[0] * k.y.dims()[2],
        // Rows.
        K::LayerNorm(k) => k.x.dims()[0],
        K::RmsNorm(k) => k.x.dims()[0],
        K::QuantizeInt8(k) => k.x.dims()[0],
        // Channels.
        K::BatchNorm(k) => k.x.dims()[1],
        K::BatchNormGrad(k) => k.x.dims()[1],
        K::NllLoss(_) | K::UpdateScale(_) => 1,
        K::Rope(k) => k.out.numel() / 2,
        K::Attention(k) => k.q.dims()[..3].iter().product(),
        K::SgdStep(_) | K::AdamStep(_) | K::Unscale(_) => first,
        K::LayerNormGrad(LayerNormGrad { x, out_x, out_weight, out_bias, .. }) => {
            let parameters = out_weight.is_some() || out_bias.is_some();
            return rows_and_columns(["layer_norm_grad_x", "layer_norm_grad_w"], x, [out_x.is_some(), parameters], f);
        }
        K::RmsNormGrad(RmsNormGrad { x, out_x, out_weight, .. }) => {
            return rows_and_columns(
                ["rms_norm_grad_x", "rms_norm_grad_w"],
                x,
                [out_x.is_some(), out_weight.is_some()],
                f,
            );
        }
        K::AttentionGrad(AttentionGrad { q, k, dmask, .. }) => {
            let (queries, keys) = (q.dims()[..3].iter().product(), k.dims()[..3].iter().product());
            f("attention_grad_delta", queries)?;
            f("attention_grad_q", queries)?;
            f("attention_grad_k", keys)?;
            f("attention_grad_v", keys)?;
            return f("attention_grad_mask", dmask.map_or(0, |mask| mask.numel()));
        }
        _ => place(call.operand_names(), "out").and_then(|place| operands[place]).map_or(0, |out| out.numel()),
    };
    f(call.name(), items)
}

/// Calls `f` with the functions of a normalisation's gradients, as far as they are wanted: the input's by rows, the
/// parameters' by columns.
fn rows_and_columns(
    functions: [&'static str; 2],
    x: &Operand,
    wanted: [bool; 2],
    f: &mut dyn FnMut(&'static str, usize) -> Result<()>,
) -> Result<()> {
    for ((function, wanted), &items) in functions.into_iter().zip(wanted).zip(x.dims()) {
        f(function, if wanted { items } else { 0 })?;
    }
    Ok(())
}
