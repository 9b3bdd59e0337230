//! Fused optimizer steps over many parameters, and the loss scaler's kernels.

use std::ffi::c_void;

use memcore::backend::Operand;
use memcore::backend::kernel::{AdamStep, SgdStep, Unscale, UpdateScale};
use memcore::{DType, Result};

use crate::arguments::{Bits, Definition, Field, argument, arguments};
use crate::kernel::{ONE_FORM, Tag, kernels};
use crate::launch::{Context, Grid};

/// Tensors per launch: as many as fit an argument of 4 KiB.
const MAX_TENSORS: usize = 72;

/// Elements per block.
const CHUNK: u64 = 4096;

arguments! { TENSORS:
    #[derive(Default)]
    struct SgdTensor {
        param: *mut c_void,
        grad: *const c_void,
        momentum: *mut c_void,
        elements: u64,
        /// 1 if 16 bytes can be moved at a time.
        aligned: u64,
    }

    #[derive(Default)]
    struct AdamTensor {
        param: *mut c_void,
        grad: *const c_void,
        exp_avg: *mut c_void,
        exp_avg_sq: *mut c_void,
        max_exp_avg_sq: *mut c_void,
        /// The highest bit is set if 16 bytes can be moved at a time.
        elements: u64,
    }

    #[derive(Default)]
    struct UnscaleTensor {
        grad: *mut c_void,
        elements: u64,
        aligned: u64,
    }
}

argument! { [T: Field<Host = T> + Copy + PartialEq] [format!("List<{}>", T::declare("").trim_end())]
    /// The blocks of `tensors[i]` begin at `first_block[i]`.
    struct List<T> {
        first_block: [u32; MAX_TENSORS + 1],
        count: u32,
        tensors: [T; MAX_TENSORS],
    }
}

/// The C definitions of a list for each kind of tensors.
pub(crate) const LISTS: &[Definition] = &[
    || "template <typename Tensor> struct List;\n".to_string(),
    || format!("template <> {}", List::<SgdTensor>::definition()),
    || format!("template <> {}", List::<AdamTensor>::definition()),
    || format!("template <> {}", List::<UnscaleTensor>::definition()),
];

arguments! { ARGUMENTS:
    struct SgdArgs {
        list: List<SgdTensor>,
        found_inf: *const f32,
        lr: f32,
        momentum: f32,
        undamped: f32,
        weight_decay: f32,
        nesterov: u32,
        maximize: u32,
        first_step: u32,
        unused: u32,
    }

    struct AdamArgs {
        list: List<AdamTensor>,
        found_inf: *const f32,
        beta2: f32,
        /// 1 - β₁ and 1 - β₂
        left1: f32,
        left2: f32,
        /// lr/(1 - β₁ᵗ)
        step_size: f32,
        /// 1/√(1 - β₂ᵗ)
        inv_correction: f32,
        eps: f32,
        weight_decay: f32,
        /// 1 - lr·weight_decay
        decay: f32,
        decoupled: u32,
        maximize: u32,
    }

    struct UnscaleArgs {
        list: List<UnscaleTensor>,
        inv_scale: *const f32,
        found_inf: *mut f32,
    }

    struct UpdateScaleArgs {
        scale: *mut f32,
        growth_tracker: *mut i32,
        found_inf: *const f32,
        growth_factor: f32,
        backoff_factor: f32,
        growth_interval: i32,
        unused: u32,
    }
}

kernels! { KERNELS in Optim:
    SGD_STEP: "sgd_step" FLOATS ONE_FORM => SgdArgs;
    ADAM_STEP: "adam_step" FLOATS ONE_FORM => AdamArgs;
    UNSCALE: "unscale" FLOATS ONE_FORM => UnscaleArgs;
    UPDATE_SCALE: "update_scale" ONLY ONE_FORM => UpdateScaleArgs;
}

impl<T: Field<Host = T> + Copy + Default + PartialEq> List<T> {
    fn new() -> Self {
        Self { first_block: [0; MAX_TENSORS + 1], count: 0, tensors: [T::default(); MAX_TENSORS] }
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

/// Goes over a list in launches of one type, each with as many tensors as an argument holds. `tensor` makes the entry
/// of an item; `launch` runs a list.
fn each_list<I, T: Field<Host = T> + Copy + Default + PartialEq>(
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
            let grid = Grid { blocks: [list.blocks(), 1, 1], ..Grid::over_blocks(1) };
            let done = launch(list, Tag::tag_of(dtype), grid);
            *list = List::new();
            done
        };
        for item in items {
            let of = operand(item);
            if of.dtype == dtype && of.numel() > 0 {
                list.push(tensor(item)?, of.numel() as u64);
                if list.count as usize == MAX_TENSORS {
                    run(&mut list)?;
                }
            }
        }
        run(&mut list)?;
    }
    Ok(())
}

/// True if four elements at a time can be moved at all of these addresses (0: absent).
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
            ctx.launch(SGD_STEP, tag, 0, grid, &args)
        },
    )
}

/// A step of Adam or AdamW over all parameters.
pub(crate) fn adam_step(ctx: &Context<'_>, k: &AdamStep) -> Result<()> {
    let found_inf = ctx.at_optional(&k.found_inf)?;
    let entry = |t: &memcore::backend::kernel::AdamTensors| {
        let (param, grad) = (ctx.at(&t.param)?, ctx.at(&t.grad)?);
        let (exp_avg, exp_avg_sq) = (ctx.at(&t.exp_avg)?, ctx.at(&t.exp_avg_sq)?);
        let max_exp_avg_sq = ctx.at_optional(&t.max_exp_avg_sq)?;
        let wide = aligned(t.param.dtype, &[param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq]);
        let elements = t.param.numel() as u64 | u64::from(wide) << 63;
        Ok(AdamTensor { param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, elements })
    };
    let [step_size, correction] = k.corrections();
    each_list(
        &k.tensors,
        |t| &t.param,
        entry,
        |list, tag, grid| {
            let args = AdamArgs {
                list: *list,
                found_inf,
                beta2: Bits(k.betas[1] as f32),
                left1: Bits((1.0 - k.betas[0]) as f32),
                left2: Bits((1.0 - k.betas[1]) as f32),
                step_size: Bits(step_size as f32),
                inv_correction: Bits((1.0 / correction) as f32),
                eps: Bits(k.eps as f32),
                weight_decay: Bits(k.weight_decay as f32),
                decay: Bits((1.0 - k.lr * k.weight_decay) as f32),
                decoupled: k.decoupled.into(),
                maximize: k.maximize.into(),
            };
            ctx.launch(ADAM_STEP, tag, 0, grid, &args)
        },
    )
}

/// Computes `grad *= inv_scale` for every gradient, and records whether one was infinite or NaN.
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
        |list, tag, grid| ctx.launch(UNSCALE, tag, 0, grid, &UnscaleArgs { list: *list, inv_scale, found_inf }),
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
    ctx.launch(UPDATE_SCALE, Tag::Only, 0, ctx.grid(1), &args)
}
