//! Batch normalisation, channel by channel.

use memcore::backend::Operand;
use memcore::backend::kernel::{BatchNorm, BatchNormGrad};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare};
use crate::job::Context;
use crate::key::Variant;
use crate::rows::Lanes;

/// Images, channels, pixels.
fn sizes(x: &Operand) -> [usize; 3] {
    [x.dims()[0], x.dims()[1], x.dims()[2]]
}

pub(crate) fn batch_norm(cx: &mut Context<'_>, k: &BatchNorm) -> Result<()> {
    let [images, channels, pixels] = sizes(&k.x);
    let (lanes, elem) = (Lanes::for_rows(cx, channels, images * pixels), Elem::from_dtype(k.x.dtype));
    let parameter = Elem::from_dtype(k.parameter_dtype());
    let mut job = cx.job();
    job.bind(&k.x).bind_opt(k.weight.as_ref()).bind_opt(k.bias.as_ref());
    job.bind_opt(k.running_mean.as_ref()).bind_opt(k.running_var.as_ref()).bind(&k.out);
    job.bind_opt(k.save_mean.as_ref()).bind_opt(k.save_invstd.as_ref());
    job.u(channels).u(images * pixels).u(pixels).f(k.eps).f(k.momentum).f(1.0 - k.momentum);
    let has = [k.weight.is_some(), k.bias.is_some(), k.running_mean.is_some(), k.running_var.is_some()];
    let mut variant = Variant::new().with(4, lanes.code()).with(4, elem.code()).with(4, parameter.code());
    variant = variant.with(1, k.training.into());
    for present in has {
        variant = variant.with(1, present.into());
    }
    cx.run(&job, variant.key("batch_norm"), lanes.groups(channels), || {
        let slots = [
            Slot::read("x", elem),
            Slot::read("weight", parameter),
            Slot::read("bias", parameter),
            Slot::write("running_mean", parameter),
            Slot::write("running_var", parameter),
            Slot::write("out", elem),
            Slot::write("save_mean", Elem::F32),
            Slot::write("save_invstd", Elem::F32),
        ];
        let texts = [
            ("$TRAINING", if k.training { "true" } else { "false" }),
            ("$WEIGHT", if has[0] { " * weight_at(at)" } else { "" }),
            ("$BIAS", if has[1] { " + bias_at(at)" } else { "" }),
            ("$RUNNING_MEAN", if has[2] { "true" } else { "false" }),
            ("$RUNNING_VAR", if has[3] { "true" } else { "false" }),
        ];
        declare(&slots, "rows: u32, count: u32, pixels: u32, eps: f32, momentum: f32, kept: f32")
            + &lanes.functions()
            + &lanes.fill(include_str!("batch.wgsl"), &texts)
    })
}

pub(crate) fn batch_norm_grad(cx: &mut Context<'_>, k: &BatchNormGrad) -> Result<()> {
    let [images, channels, pixels] = sizes(&k.x);
    let (lanes, elem) = (Lanes::for_rows(cx, channels, images * pixels), Elem::from_dtype(k.x.dtype));
    let parameter = Elem::from_dtype(k.parameter_dtype());
    let mut job = cx.job();
    job.bind(&k.grad).bind(&k.x).bind(&k.mean).bind(&k.invstd).bind_opt(k.weight.as_ref());
    job.bind_opt(k.out_x.as_ref()).bind_opt(k.out_weight.as_ref()).bind_opt(k.out_bias.as_ref());
    job.u(channels).u(images * pixels).u(pixels);
    for operand in [&k.grad, &k.x] {
        operand.layout.strides().iter().for_each(|&step| {
            job.u(step);
        });
    }
    let has = [k.weight.is_some(), k.out_x.is_some(), k.out_weight.is_some(), k.out_bias.is_some()];
    let mut variant = Variant::new().with(4, lanes.code()).with(4, elem.code()).with(4, parameter.code());
    variant = variant.with(1, k.training.into());
    for present in has {
        variant = variant.with(1, present.into());
    }
    cx.run(&job, variant.key("batch_norm_grad"), lanes.groups(channels), || {
        let slots = [
            Slot::read("grad", elem),
            Slot::read("x", elem),
            Slot::read("mean", Elem::F32),
            Slot::read("invstd", Elem::F32),
            Slot::read("weight", parameter),
            Slot::write("out", elem),
            Slot::write("dweight", parameter),
            Slot::write("dbias", parameter),
        ];
        let texts = [
            ("$TRAINING", if k.training { "true" } else { "false" }),
            ("$WEIGHT", if has[0] { " * weight_at(at)" } else { "" }),
            ("$WANTS_X", if has[1] { "true" } else { "false" }),
            ("$WANTS_WEIGHT", if has[2] { "true" } else { "false" }),
            ("$WANTS_BIAS", if has[3] { "true" } else { "false" }),
        ];
        let steps = "grad_image: u32, grad_channel: u32, grad_pixel: u32, x_image: u32, x_channel: u32, x_pixel: u32";
        declare(&slots, &format!("rows: u32, count: u32, pixels: u32, {steps}"))
            + &lanes.functions()
            + &lanes.fill(include_str!("batch_grad.wgsl"), &texts)
    })
}
