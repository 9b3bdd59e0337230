//! Fused optimizer steps, one dispatch per parameter, and the loss scaler's kernels.

use memcore::backend::Operand;
use memcore::backend::kernel::{AdamStep, SgdStep, Unscale, UpdateScale};
use memcore::error::Result;

use crate::element::{Elem, Slot, Width, declare, fill_in};
use crate::job::{Context, Job};
use crate::key::Variant;

const THREADS: u64 = 256;

/// Pushes the number of units. Units are quads if all these operands allow it, else elements.
fn units(job: &mut Job, operands: &[usize], numel: usize) -> (bool, u64) {
    let wide = numel.is_multiple_of(4) && operands.iter().all(|&i| job.first(i).is_multiple_of(4));
    let units = if wide { numel / 4 } else { numel };
    job.u(units);
    (wide, units as u64)
}

/// Template texts for one element or four.
fn widths(wide: bool) -> (Width, [(&'static str, &'static str); 2]) {
    if wide { (Width::Four, [("$4", "4"), ("$T", "vec4<f32>")]) } else { (Width::One, [("$4", ""), ("$T", "f32")]) }
}

fn sign(maximize: bool) -> f64 {
    if maximize { -1.0 } else { 1.0 }
}

/// WGSL condition for skipping the step.
fn skips(found_inf: &Option<Operand>) -> &'static str {
    if found_inf.is_some() { "found_inf_at(0u) != 0.0" } else { "false" }
}

pub(crate) fn sgd_step(cx: &mut Context<'_>, k: &SgdStep) -> Result<()> {
    for t in k.tensors.iter() {
        let elem = Elem::of(t.param.dtype);
        let mut job = cx.job();
        job.bind(&t.param).bind(&t.grad).bind_opt(t.momentum.as_ref()).bind_opt(k.found_inf.as_ref());
        let (wide, units) = units(&mut job, &[0, 1, 2], t.param.numel());
        job.f(sign(k.maximize)).f(k.weight_decay).f(k.momentum).f(1.0 - k.dampening).f(k.lr);
        let momentum = t.momentum.is_some();
        let variant = Variant::new().with(4, elem.code()).with(1, wide.into()).with(1, momentum.into());
        let variant = variant.with(1, k.first_step.into()).with(1, k.nesterov.into());
        let variant = variant.with(1, k.found_inf.is_some().into());
        cx.run(&job, variant.key("sgd_step"), units.div_ceil(THREADS), || {
            let (width, [four, t]) = widths(wide);
            let slots = [
                Slot::write("param", elem).wide(width),
                Slot::read("grad", elem).wide(width),
                Slot::write("buffer", elem).wide(width),
                Slot::read("found_inf", Elem::F32),
            ];
            let buffer = match (momentum, k.first_step, k.nesterov) {
                (false, ..) => "",
                (_, true, false) => "let b = g; buffer_put$4(i, b); g = b;",
                (_, true, true) => "let b = g; buffer_put$4(i, b); g = g + p.momentum * b;",
                (_, false, false) => "let b = p.momentum * buffer_at$4(i) + p.undamped * g; buffer_put$4(i, b); g = b;",
                (_, false, true) => {
                    "let b = p.momentum * buffer_at$4(i) + p.undamped * g; buffer_put$4(i, b); g = g + p.momentum * b;"
                }
            };
            let buffer = fill_in(buffer, &[four]);
            let texts = [four, t, ("$SKIPS", skips(&k.found_inf)), ("$BUFFER", &buffer)];
            declare(&slots, "n: u32, sign: f32, weight_decay: f32, momentum: f32, undamped: f32, lr: f32")
                + &fill_in(include_str!("optim/sgd.wgsl"), &texts)
        })?;
    }
    Ok(())
}

pub(crate) fn adam_step(cx: &mut Context<'_>, k: &AdamStep) -> Result<()> {
    let [beta1, beta2] = k.betas;
    for t in k.tensors.iter() {
        let elem = Elem::of(t.param.dtype);
        let mut job = cx.job();
        job.bind(&t.param).bind(&t.grad).bind(&t.exp_avg).bind(&t.exp_avg_sq);
        job.bind_opt(t.max_exp_avg_sq.as_ref()).bind(&t.step).bind_opt(k.found_inf.as_ref());
        let (wide, units) = units(&mut job, &[0, 1, 2, 3, 4], t.param.numel());
        job.f(sign(k.maximize)).f(k.lr).f(k.eps);
        // Adam adds the decay to the gradient, AdamW subtracts it from the parameter.
        job.f(if k.decoupled { 0.0 } else { k.weight_decay });
        job.f(if k.decoupled { 1.0 - k.lr * k.weight_decay } else { 1.0 });
        job.f(1.0 - beta1).f(beta2).f(1.0 - beta2).f(beta1.ln()).f(beta2.ln());
        let amsgrad = t.max_exp_avg_sq.is_some();
        let variant = Variant::new().with(4, elem.code()).with(1, wide.into()).with(1, amsgrad.into());
        let variant = variant.with(1, k.found_inf.is_some().into());
        cx.run(&job, variant.key("adam_step"), units.div_ceil(THREADS), || {
            let (width, [four, t]) = widths(wide);
            let slots = [
                Slot::write("param", elem).wide(width),
                Slot::read("grad", elem).wide(width),
                Slot::write("avg", elem).wide(width),
                Slot::write("sq", elem).wide(width),
                Slot::write("max_sq", elem).wide(width),
                Slot::read("step", Elem::F32),
                Slot::read("found_inf", Elem::F32),
            ];
            let max = if amsgrad { "v = max(max_sq_at$4(i), v); max_sq_put$4(i, v);" } else { "" };
            let max = fill_in(max, &[four]);
            let texts = [four, t, ("$SKIPS", skips(&k.found_inf)), ("$MAX", &max)];
            let fields = "n: u32, sign: f32, lr: f32, eps: f32, decay: f32, keep: f32, one_minus_beta1: f32, \
                 beta2: f32, one_minus_beta2: f32, log_beta1: f32, log_beta2: f32";
            declare(&slots, fields) + &fill_in(include_str!("optim/adam.wgsl"), &texts)
        })?;
    }
    Ok(())
}

pub(crate) fn unscale(cx: &mut Context<'_>, k: &Unscale) -> Result<()> {
    for grad in k.grads.iter() {
        let elem = Elem::of(grad.dtype);
        let mut job = cx.job();
        job.bind(grad).bind(&k.inv_scale).bind(&k.found_inf);
        let (wide, units) = units(&mut job, &[0], grad.numel());
        let variant = Variant::new().with(4, elem.code()).with(1, wide.into());
        cx.run(&job, variant.key("unscale"), units.div_ceil(THREADS), || {
            let (width, [four, t]) = widths(wide);
            let slots = [
                Slot::write("grad", elem).wide(width),
                Slot::read("inv_scale", Elem::F32),
                Slot::write("found_inf", Elem::F32),
            ];
            let finite = if wide {
                "is_finite(g.x) && is_finite(g.y) && is_finite(g.z) && is_finite(g.w)"
            } else {
                "is_finite(g)"
            };
            declare(&slots, "n: u32") + &fill_in(include_str!("optim/unscale.wgsl"), &[four, t, ("$FINITE", finite)])
        })?;
    }
    Ok(())
}

pub(crate) fn update_scale(cx: &mut Context<'_>, k: &UpdateScale) -> Result<()> {
    let mut job = cx.job();
    job.bind(&k.scale).bind(&k.growth_tracker).bind(&k.found_inf);
    job.f(k.growth_factor).f(k.backoff_factor).word(k.growth_interval as u32);
    cx.run(&job, Variant::new().key("update_scale"), 1, || {
        let slots =
            [Slot::write("scale", Elem::F32), Slot::write("tracker", Elem::I32), Slot::read("found_inf", Elem::F32)];
        declare(&slots, "growth: f32, backoff: f32, interval: i32") + include_str!("optim/update_scale.wgsl")
    })
}
