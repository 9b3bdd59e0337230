//! Max and average pooling.

use std::ffi::c_void;

use memcore::Result;
use memcore::backend::Operand;
use memcore::backend::kernel::{Pool2d, Pool2dGeometry, Pool2dGrad, PoolOp};

use crate::arguments::arguments;
use crate::kernel::{Kernel, ONE_FORM, Tag, kernels};
use crate::launch::Context;
use crate::walk::Divider;

arguments! { ARGUMENTS:
    struct PoolArgs {
        out: *mut c_void,
        /// The input; for the backward pass, the gradient of the result.
        x: *const c_void,
        indices: *mut i64,
        /// Number of elements that the launch writes; fewer than 2^31.
        elements: u32,
        /// Sizes of the input plane and the output plane.
        height: u32,
        width: u32,
        out_height: u32,
        out_width: u32,
        window: [u32; 2],
        stride: [u32; 2],
        padding: [u32; 2],
        by_width: Divider,
        by_height: Divider,
        max: u32,
    }
}

kernels! { KERNELS in Pool:
    POOL2D: "pool2d" FLOATS ONE_FORM => PoolArgs;
    POOL2D_GRAD: "pool2d_grad" FLOATS ONE_FORM => PoolArgs;
}

/// True if positions fit 31 bits.
pub(crate) fn supports(x: &Operand, y: &Operand) -> bool {
    x.numel() < 1 << 31 && y.numel() < 1 << 31
}

impl PoolArgs {
    /// Creates the arguments. `x` is the input's side, `y` the result's; the launch goes over the elements of `over`.
    fn new(g: &Pool2dGeometry, op: PoolOp, x: &Operand, y: &Operand, over: &Operand) -> Self {
        let plane = |operand: &Operand| [operand.dims()[2] as u32, operand.dims()[3] as u32];
        let pair = |pair: [usize; 2]| pair.map(|v| v as u32);
        Self {
            out: 0,
            x: 0,
            indices: 0,
            elements: over.numel() as u32,
            height: plane(x)[0],
            width: plane(x)[1],
            out_height: plane(y)[0],
            out_width: plane(y)[1],
            window: pair(g.window),
            stride: pair(g.stride),
            padding: pair(g.padding),
            by_width: Divider::new(plane(over)[1]),
            by_height: Divider::new(plane(over)[0]),
            max: (op == PoolOp::Max).into(),
        }
    }
}

/// `out = op(window of x)`.
pub(crate) fn pool2d(ctx: &Context<'_>, k: &Pool2d) -> Result<()> {
    let args = PoolArgs::new(&k.geometry, k.op, &k.x, &k.out, &k.out);
    launch(ctx, POOL2D, [&k.out, &k.x], &k.indices, args)
}

/// The gradient of [`Pool2d`].
pub(crate) fn pool2d_grad(ctx: &Context<'_>, k: &Pool2dGrad) -> Result<()> {
    let args = PoolArgs::new(&k.geometry, k.op, &k.out, &k.grad, &k.out);
    launch(ctx, POOL2D_GRAD, [&k.out, &k.grad], &k.indices, args)
}

fn launch(
    ctx: &Context<'_>,
    kernel: Kernel<PoolArgs>,
    [out, x]: [&Operand; 2],
    indices: &Option<Operand>,
    args: PoolArgs,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let args = PoolArgs { out: ctx.at(out)?, x: ctx.at(x)?, indices: ctx.at_optional(indices)?, ..args };
    ctx.launch(kernel, Tag::tag_of(out.dtype), 0, ctx.grid(args.elements.into()), &args)
}
