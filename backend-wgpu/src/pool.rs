//! Max and average pooling over two dimensions, and their gradients.

use memcore::backend::Operand;
use memcore::backend::kernel::{Pool2d, Pool2dGeometry, Pool2dGrad, PoolOp};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare, fill_in};
use crate::job::{Context, Job};
use crate::key::Variant;

const FIELDS: &str = "count: u32, h: u32, w: u32, oh: u32, ow: u32, kh: u32, kw: u32, sh: u32, sw: u32, ph: u32, pw: u32, \
     size: f32";

fn geometry(job: &mut Job, count: usize, x: &Operand, y: &Operand, g: &Pool2dGeometry) {
    job.u(count).u(x.dims()[2]).u(x.dims()[3]).u(y.dims()[2]).u(y.dims()[3]);
    for pair in [g.window, g.stride, g.padding] {
        job.u(pair[0]).u(pair[1]);
    }
    job.f((g.window[0] * g.window[1]) as f64);
}

fn flag(op: PoolOp) -> &'static str {
    if op == PoolOp::Max { "true" } else { "false" }
}

pub(crate) fn pool2d(cx: &mut Context<'_>, k: &Pool2d) -> Result<()> {
    let elem = Elem::from_dtype(k.x.dtype);
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.out).bind_opt(k.indices.as_ref());
    geometry(&mut job, k.out.numel(), &k.x, &k.out, &k.geometry);
    let variant = Variant::new().with(4, elem.code()).with(1, k.op as u64);
    cx.run(&job, variant.key("pool2d"), (k.out.numel() as u64).div_ceil(256), || {
        let slots = [Slot::read("x", elem), Slot::write("out", elem), Slot::write("indices", Elem::I64)];
        declare(&slots, FIELDS) + &fill_in(include_str!("pool/pool.wgsl"), &[("$MAX", flag(k.op))])
    })
}

/// True if every element of the input is in exactly one window.
fn tiles(k: &Pool2dGrad) -> bool {
    let (g, x, y) = (&k.geometry, k.out.dims(), k.grad.dims());
    g.stride == g.window && g.padding == [0, 0] && (0..2).all(|axis| x[2 + axis] == y[2 + axis] * g.window[axis])
}

pub(crate) fn pool2d_grad(cx: &mut Context<'_>, k: &Pool2dGrad) -> Result<()> {
    let elem = Elem::from_dtype(k.out.dtype);
    let (tiles, of_window) = (tiles(k), include_str!("pool/window_gradient.wgsl"));
    // If so, one thread per window writes all of the window; else one thread per element of the input goes through
    // every window around it.
    let (count, template) =
        if tiles { (k.grad.numel(), of_window) } else { (k.out.numel(), include_str!("pool/gradient.wgsl")) };
    let mut job = cx.job();
    job.bind(&k.grad).bind_opt(k.indices.as_ref()).bind(&k.out);
    geometry(&mut job, count, &k.out, &k.grad, &k.geometry);
    let variant = Variant::new().with(4, elem.code()).with(1, k.op as u64).with(1, tiles.into());
    cx.run(&job, variant.key("pool2d_grad"), (count as u64).div_ceil(256), || {
        let slots = [Slot::read("grad", elem), Slot::read("indices", Elem::I64), Slot::write("out", elem)];
        declare(&slots, FIELDS) + &fill_in(template, &[("$MAX", flag(k.op))])
    })
}
