//! Fused optimizer steps over many parameters, and the loss scaler's kernels.

use memcore::backend::Operand;
use memcore::backend::kernel::{AdamStep, SgdStep, Unscale, UpdateScale};
use memcore::{DType, Result};

use crate::kernels::{Kernel, Tag};
use crate::launch::{Bits, Context, Grid};

/// Tensors of a launch: what an argument of 4 KiB holds.
const MOST_TENSORS: usize = 48;

/// Elements of a block.
const CHUNK: u64 = 4096;

/// `List<Tensor>` of the kernels, as the structs below.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct List<T: Copy> {
    first_block: [u32; MOST_TENSORS + 1],
    count: u32,
    tensors: [T; MOST_TENSORS],
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
struct SgdTensor {
    param: u64,
    grad: u64,
    momentum: u64,
    elements: u64,
    aligned: u64,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct SgdArgs {
    list: List<SgdTensor>,
    found_inf: u64,
    lr: Bits<f32>,
    momentum: Bits<f32>,
    undamped: Bits<f32>,
    weight_decay: Bits<f32>,
    nesterov: u32,
    maximize: u32,
    first_step: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
struct AdamTensor {
    param: u64,
    grad: u64,
    exp_avg: u64,
    exp_avg_sq: u64,
    max_exp_avg_sq: u64,
    step: u64,
    elements: u64,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct AdamArgs {
    list: List<AdamTensor>,
    found_inf: u64,
    beta1: f64,
    beta2: f64,
    lr: Bits<f32>,
    eps: Bits<f32>,
    weight_decay: Bits<f32>,
    decay: Bits<f32>,
    decoupled: u32,
    maximize: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
struct UnscaleTensor {
    grad: u64,
    elements: u64,
    aligned: u64,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct UnscaleArgs {
    list: List<UnscaleTensor>,
    inv_scale: u64,
    found_inf: u64,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct UpdateScaleArgs {
    scale: u64,
    growth_tracker: u64,
    found_inf: u64,
    growth_factor: Bits<f32>,
    backoff_factor: Bits<f32>,
    growth_interval: i32,
    unused: u32,
}

impl<T: Copy + Default> List<T> {
    fn new() -> Self {
        Self { first_block: [0; MOST_TENSORS + 1], count: 0, tensors: [T::default(); MOST_TENSORS] }
    }

    fn push(&mut self, tensor: T, elements: u64) {
        let at = self.count as usize;
        self.tensors[at] = tensor;
        self.first_block[at + 1] = self.first_block[at] + elements.div_ceil(CHUNK) as u32;
        self.count += 1;
    }

    fn blocks(&self) -> u32 {
        self.first_block[self.count as usize]
    }
}

/// Goes over a list in launches of one type, as many tensors as an argument holds. `tensor` makes the entry of an item;
/// `launch` runs a list.
fn each_list<I, T: Copy + Default>(
    items: &[I],
    operand: impl Fn(&I) -> &Operand,
    mut tensor: impl FnMut(&I) -> Result<T>,
    mut launch: impl FnMut(&List<T>, Tag, Grid) -> Result<()>,
) -> Result<()> {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let mut list = List::new();
        let mut run = |list: &mut List<T>| {
            if list.count == 0 {
                return Ok(());
            }
            let grid = Grid { blocks: [list.blocks(), 1, 1], ..Grid::of(1) };
            let done = launch(list, Tag::of(dtype), grid);
            *list = List::new();
            done
        };
        for item in items {
            let of = operand(item);
            if of.dtype == dtype && of.numel() > 0 {
                list.push(tensor(item)?, of.numel() as u64);
                if list.count as usize == MOST_TENSORS {
                    run(&mut list)?;
                }
            }
        }
        run(&mut list)?;
    }
    Ok(())
}

/// Whether all of these addresses (0: absent) take four elements at a time.
fn aligned(dtype: DType, addresses: &[u64]) -> bool {
    addresses.iter().all(|address| address.is_multiple_of(4 * dtype.size()))
}

/// A step of SGD over all parameters.
pub(crate) fn sgd_step(ctx: &Context<'_>, k: &SgdStep) -> Result<()> {
    let found_inf = ctx.at_optional(&k.found_inf)?;
    let entry = |t: &memcore::backend::kernel::SgdTensors| {
        let (param, grad, momentum) = (ctx.at(&t.param)?, ctx.at(&t.grad)?, ctx.at_optional(&t.momentum)?);
        let aligned = aligned(t.param.dtype, &[param, grad, momentum]).into();
        Ok(SgdTensor { param, grad, momentum, elements: t.param.numel() as u64, aligned })
    };
    each_list(
        &k.tensors,
        |t| &t.param,
        entry,
        |list, tag, grid| {
            let args = SgdArgs {
                list: *list,
                found_inf,
                lr: Bits(k.lr as f32),
                momentum: Bits(k.momentum as f32),
                undamped: Bits((1.0 - k.dampening) as f32),
                weight_decay: Bits(k.weight_decay as f32),
                nesterov: k.nesterov.into(),
                maximize: k.maximize.into(),
                first_step: k.first_step.into(),
                unused: 0,
            };
            ctx.launch(Kernel::SgdStep, tag, 0, grid, &args)
        },
    )
}

/// A step of Adam or AdamW over all parameters.
pub(crate) fn adam_step(ctx: &Context<'_>, k: &AdamStep) -> Result<()> {
    let found_inf = ctx.at_optional(&k.found_inf)?;
    let entry = |t: &memcore::backend::kernel::AdamTensors| {
        let (param, grad) = (ctx.at(&t.param)?, ctx.at(&t.grad)?);
        let (exp_avg, exp_avg_sq) = (ctx.at(&t.exp_avg)?, ctx.at(&t.exp_avg_sq)?);
        let (max_exp_avg_sq, step) = (ctx.at_optional(&t.max_exp_avg_sq)?, ctx.at(&t.step)?);
        let wide = aligned(t.param.dtype, &[param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq]);
        let elements = t.param.numel() as u64 | u64::from(wide) << 63;
        Ok(AdamTensor { param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step, elements })
    };
    each_list(
        &k.tensors,
        |t| &t.param,
        entry,
        |list, tag, grid| {
            let args = AdamArgs {
                list: *list,
                found_inf,
                beta1: k.betas[0],
                beta2: k.betas[1],
                lr: Bits(k.lr as f32),
                eps: Bits(k.eps as f32),
                weight_decay: Bits(k.weight_decay as f32),
                decay: Bits((1.0 - k.lr * k.weight_decay) as f32),
                decoupled: k.decoupled.into(),
                maximize: k.maximize.into(),
            };
            ctx.launch(Kernel::AdamStep, tag, 0, grid, &args)
        },
    )
}

/// `grad *= inv_scale` for every gradient, and whether one was no number.
pub(crate) fn unscale(ctx: &Context<'_>, k: &Unscale) -> Result<()> {
    let (inv_scale, found_inf) = (ctx.at(&k.inv_scale)?, ctx.at(&k.found_inf)?);
    let entry = |grad: &Operand| {
        let address = ctx.at(grad)?;
        let aligned = aligned(grad.dtype, &[address]).into();
        Ok(UnscaleTensor { grad: address, elements: grad.numel() as u64, aligned })
    };
    each_list(
        &k.grads,
        |grad| grad,
        entry,
        |list, tag, grid| ctx.launch(Kernel::Unscale, tag, 0, grid, &UnscaleArgs { list: *list, inv_scale, found_inf }),
    )
}

/// The loss scaler's update.
pub(crate) fn update_scale(ctx: &Context<'_>, k: &UpdateScale) -> Result<()> {
    let args = UpdateScaleArgs {
        scale: ctx.at(&k.scale)?,
        growth_tracker: ctx.at(&k.growth_tracker)?,
        found_inf: ctx.at(&k.found_inf)?,
        growth_factor: Bits(k.growth_factor as f32),
        backoff_factor: Bits(k.backoff_factor as f32),
        growth_interval: k.growth_interval,
        unused: 0,
    };
    ctx.launch(Kernel::UpdateScale, Tag::Only, 0, ctx.grid(1), &args)
}
