//! Negative log-likelihood of class indices.

use memcore::backend::kernel::{NllLoss, NllLossGrad, Reduction};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare, fill_in};
use crate::job::Context;
use crate::key::Variant;
use crate::rows::Lanes;

pub(crate) fn nll_loss(cx: &mut Context<'_>, k: &NllLoss) -> Result<()> {
    let [rows, classes, inner] = *k.log_probs.dims() else { return Ok(()) };
    let elem = Elem::from_dtype(k.log_probs.dtype);
    let mut job = cx.job();
    job.bind(&k.log_probs).bind(&k.target).bind(&k.out).bind(&k.total_weight);
    job.u(rows * inner).u(classes).u(inner).word(k.ignore_index as u32).word((k.ignore_index >> 32) as u32);
    let variant = Variant::new().with(4, elem.code()).with(2, k.reduction as u64);
    cx.run(&job, variant.key("nll_loss"), 1, || {
        let slots = [
            Slot::read("log_probs", elem),
            Slot::read("labels", Elem::I64),
            Slot::write("out", elem),
            Slot::write("total_weight", elem),
        ];
        let (each, all) = match k.reduction {
            Reduction::None => ("out_put(i, loss);", ""),
            Reduction::Mean => ("", "out_put(0u, sum / counted);"),
            Reduction::Sum => ("", "out_put(0u, sum);"),
        };
        declare(&slots, "targets: u32, classes: u32, inner: u32, ignored_low: u32, ignored_high: u32")
            + &Lanes::WORKGROUP.functions()
            + &fill_in(include_str!("loss/nll.wgsl"), &[("$EACH", each), ("$ALL", all)])
    })
}

pub(crate) fn nll_loss_grad(cx: &mut Context<'_>, k: &NllLossGrad) -> Result<()> {
    let [rows, classes, inner] = *k.out.dims() else { return Ok(()) };
    let count = rows * classes * inner;
    let elem = Elem::from_dtype(k.out.dtype);
    let mut job = cx.job();
    job.bind(&k.grad).bind(&k.target).bind(&k.total_weight).bind(&k.out);
    let [example, position] = k.grad_strides();
    job.u(count)
        .u(classes)
        .u(inner)
        .u(example)
        .u(position)
        .word(k.ignore_index as u32)
        .word((k.ignore_index >> 32) as u32);
    let variant = Variant::new().with(4, elem.code()).with(2, k.reduction as u64);
    cx.run(&job, variant.key("nll_loss_grad"), (count as u64).div_ceil(256), || {
        let slots = [
            Slot::read("grad", elem),
            Slot::read("labels", Elem::I64),
            Slot::read("total_weight", elem),
            Slot::write("out", elem),
        ];
        let value = match k.reduction {
            Reduction::None => "-grad_at(of_target)",
            Reduction::Mean => "-grad_at(0u) * (1.0 / total_weight_at(0u))",
            Reduction::Sum => "-grad_at(0u)",
        };
        declare(
            &slots,
            "count: u32, classes: u32, inner: u32, example: u32, position: u32, ignored_low: u32, ignored_high: u32",
        ) + &fill_in(include_str!("loss/gradient.wgsl"), &[("$VALUE", value)])
    })
}
