//! Max and average pooling.

use memcore::Result;
use memcore::backend::Operand;
use memcore::backend::kernel::{Pool2d, Pool2dGeometry, Pool2dGrad, PoolOp};

use crate::kernels::{Kernel, Tag};
use crate::launch::Context;
use crate::walk::Divider;

/// `PoolArgs` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct PoolArgs {
    out: u64,
    x: u64,
    indices: u64,
    elements: u32,
    planes: [[u32; 2]; 2],
    window: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
    by_width: Divider,
    by_height: Divider,
    max: u32,
}

/// Positions have 31 bits.
pub(crate) fn supports(x: &Operand, y: &Operand) -> bool {
    x.numel() < 1 << 31 && y.numel() < 1 << 31
}

impl PoolArgs {
    /// `x` is the input's side, `y` the result's, `over` the one whose elements the launch goes over.
    fn new(g: &Pool2dGeometry, op: PoolOp, x: &Operand, y: &Operand, over: &Operand) -> Self {
        let plane = |operand: &Operand| [operand.dims()[2] as u32, operand.dims()[3] as u32];
        let pair = |pair: [usize; 2]| pair.map(|v| v as u32);
        Self {
            out: 0,
            x: 0,
            indices: 0,
            elements: over.numel() as u32,
            planes: [plane(x), plane(y)],
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
    if k.out.numel() == 0 {
        return Ok(());
    }
    let args = PoolArgs {
        out: ctx.at(&k.out)?,
        x: ctx.at(&k.x)?,
        indices: ctx.at_optional(&k.indices)?,
        ..PoolArgs::new(&k.geometry, k.op, &k.x, &k.out, &k.out)
    };
    ctx.launch(Kernel::Pool2d, Tag::of(k.out.dtype), 0, ctx.grid(args.elements.into()), &args)
}

/// The gradient of [`Pool2d`].
pub(crate) fn pool2d_grad(ctx: &Context<'_>, k: &Pool2dGrad) -> Result<()> {
    if k.out.numel() == 0 {
        return Ok(());
    }
    let args = PoolArgs {
        out: ctx.at(&k.out)?,
        x: ctx.at(&k.grad)?,
        indices: ctx.at_optional(&k.indices)?,
        ..PoolArgs::new(&k.geometry, k.op, &k.out, &k.grad, &k.out)
    };
    ctx.launch(Kernel::Pool2dGrad, Tag::of(k.out.dtype), 0, ctx.grid(args.elements.into()), &args)
}
