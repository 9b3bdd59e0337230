//! Softmax and log-softmax over rows, and their gradients.

use memcore::backend::kernel::{Softmax, SoftmaxGrad};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare};
use crate::job::{Context, Variant};
use crate::rows::Lanes;

pub(crate) fn softmax(cx: &mut Context<'_>, k: &Softmax) -> Result<()> {
    let (rows, n) = (k.x.dims()[0], k.x.dims()[1]);
    let (lanes, x, out) = (Lanes::of(cx, rows, n), Elem::of(k.x.dtype), Elem::of(k.out.dtype));
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.out).u(rows).u(n);
    let variant = Variant::new().with(4, lanes.code()).with(4, x.code()).with(4, out.code()).with(1, k.log.into());
    cx.run(&job, variant.key("softmax"), lanes.groups(rows), || {
        let value = if k.log { "x - largest - log(total)" } else { "exp(x - largest) / total" };
        declare(&[Slot::read("x", x), Slot::write("out", out)], "rows: u32, n: u32")
            + &lanes.functions()
            + &lanes.fill(include_str!("softmax/softmax.wgsl"), &[("$VALUE", value)])
    })
}

pub(crate) fn softmax_grad(cx: &mut Context<'_>, k: &SoftmaxGrad) -> Result<()> {
    let (rows, n) = (k.y.dims()[0], k.y.dims()[1]);
    let (lanes, y, out) = (Lanes::of(cx, rows, n), Elem::of(k.y.dtype), Elem::of(k.out.dtype));
    let mut job = cx.job();
    job.bind(&k.y).bind(&k.grad).bind(&k.out).u(rows).u(n);
    let variant = Variant::new().with(4, lanes.code()).with(4, y.code()).with(4, out.code()).with(1, k.log.into());
    cx.run(&job, variant.key("softmax_grad"), lanes.groups(rows), || {
        let (term, value) = if k.log { ("g", "g - exp(y) * total") } else { ("g * y", "y * (g - total)") };
        declare(&[Slot::read("y", y), Slot::read("grad", y), Slot::write("out", out)], "rows: u32, n: u32")
            + &lanes.functions()
            + &lanes.fill(include_str!("softmax/gradient.wgsl"), &[("$TERM", term), ("$VALUE", value)])
    })
}
