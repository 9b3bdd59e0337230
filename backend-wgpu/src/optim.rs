//! Fused optimizer steps, many parameters in one dispatch, and the loss scaler's kernels.

mod many;

use memcore::backend::Operand;
use memcore::backend::kernel::{AdamStep, AdamTensors, SgdStep, Unscale, UpdateScale};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare};
use crate::job::{Context, Job};
use crate::key::Variant;
use many::{Many, OPERANDS, Operands};

/// The type of the parameter, whichever that is.
const OWN: Elem = Elem::B4;

fn sign(maximize: bool) -> f64 {
    if maximize { -1.0 } else { 1.0 }
}

/// WGSL condition for skipping the step.
fn skips(found_inf: &Option<Operand>) -> &'static str {
    if found_inf.is_some() { "found_inf_at(0u) != 0.0" } else { "false" }
}

pub(crate) fn sgd_step(cx: &mut Context<'_>, k: &SgdStep) -> Result<()> {
    let momentum = k.momentum != 0.0;
    let buffer = match (momentum, k.first_step, k.nesterov) {
        (false, ..) => "",
        (_, true, false) => "let b = g; buffer_put$4(buffer_first + i, b); g = b;",
        (_, true, true) => "let b = g; buffer_put$4(buffer_first + i, b); g = g + p.momentum * b;",
        (_, false, false) => {
            "let b = p.momentum * buffer_at$4(buffer_first + i) + p.undamped * g; \
             buffer_put$4(buffer_first + i, b); g = b;"
        }
        (_, false, true) => {
            "let b = p.momentum * buffer_at$4(buffer_first + i) + p.undamped * g; \
             buffer_put$4(buffer_first + i, b); g = g + p.momentum * b;"
        }
    };
    let variant = Variant::new().with(1, momentum.into()).with(1, k.first_step.into()).with(1, k.nesterov.into());
    let values = |job: &mut Job| {
        job.f(sign(k.maximize)).f(k.weight_decay).f(k.momentum).f(1.0 - k.dampening).f(k.lr);
    };
    let many = Many {
        name: "sgd_step",
        variant: variant.with(1, k.found_inf.is_some().into()),
        slots: vec![
            Slot::write("param", OWN),
            Slot::read("grad", OWN),
            Slot::write("buffer", OWN),
            Slot::read("found_inf", Elem::F32),
        ],
        shared: vec![k.found_inf.as_ref()],
        fields: ", sign: f32, weight_decay: f32, momentum: f32, undamped: f32, lr: f32",
        values: &values,
        text: include_str!("optim/sgd.wgsl"),
        texts: &[("$SKIPS", skips(&k.found_inf)), ("$BUFFER", buffer)],
    };
    let tensors: Vec<Operands<'_>> =
        k.tensors.iter().map(|t| operands([Some(&t.param), Some(&t.grad), t.momentum.as_ref()])).collect();
    many.run(cx, &tensors)
}

pub(crate) fn adam_step(cx: &mut Context<'_>, k: &AdamStep) -> Result<()> {
    let [beta1, beta2] = k.betas;
    let values = |job: &mut Job| {
        job.f(sign(k.maximize)).f(k.lr).f(k.eps);
        // Adam adds the decay to the gradient, AdamW subtracts it from the parameter.
        job.f(if k.decoupled { 0.0 } else { k.weight_decay });
        job.f(if k.decoupled { 1.0 - k.lr * k.weight_decay } else { 1.0 });
        job.f(1.0 - beta1).f(beta2).f(1.0 - beta2).f(beta1.ln()).f(beta2.ln());
    };
    for amsgrad in [false, true] {
        let of = |t: &AdamTensors| t.max_exp_avg_sq.is_some() == amsgrad;
        let tensors: Vec<Operands<'_>> = k.tensors.iter().filter(|t| of(t)).map(adam_operands).collect();
        let max = "v = max(max_sq_at$4(max_sq_first + i), v); max_sq_put$4(max_sq_first + i, v);";
        let many = Many {
            name: "adam_step",
            variant: Variant::new().with(1, amsgrad.into()).with(1, k.found_inf.is_some().into()),
            slots: vec![
                Slot::write("param", OWN),
                Slot::read("grad", OWN),
                Slot::write("avg", OWN),
                Slot::write("sq", OWN),
                Slot::write("max_sq", OWN),
                Slot::read("step", Elem::F32),
                Slot::read("found_inf", Elem::F32),
            ],
            shared: vec![k.found_inf.as_ref()],
            fields: ", sign: f32, lr: f32, eps: f32, decay: f32, keep: f32, one_minus_beta1: f32, \
                 beta2: f32, one_minus_beta2: f32, log_beta1: f32, log_beta2: f32",
            values: &values,
            text: include_str!("optim/adam.wgsl"),
            texts: &[("$SKIPS", skips(&k.found_inf)), ("$MAX", if amsgrad { max } else { "" })],
        };
        many.run(cx, &tensors)?;
    }
    Ok(())
}

fn adam_operands(t: &AdamTensors) -> Operands<'_> {
    let max = t.max_exp_avg_sq.as_ref();
    [Some(&t.param), Some(&t.grad), Some(&t.exp_avg), Some(&t.exp_avg_sq), max, Some(&t.step)]
}

pub(crate) fn unscale(cx: &mut Context<'_>, k: &Unscale) -> Result<()> {
    let many = Many {
        name: "unscale",
        variant: Variant::new(),
        slots: vec![Slot::write("grad", OWN), Slot::read("inv_scale", Elem::F32), Slot::write("found_inf", Elem::F32)],
        shared: vec![Some(&k.inv_scale), Some(&k.found_inf)],
        fields: "",
        values: &|_| (),
        text: include_str!("optim/unscale.wgsl"),
        texts: &[("$SKIPS", "false")],
    };
    let tensors: Vec<Operands<'_>> = k.grads.iter().map(|grad| operands([Some(grad)])).collect();
    many.run(cx, &tensors)
}

/// These operands, and none in the other places.
fn operands<'a, const N: usize>(first: [Option<&'a Operand>; N]) -> Operands<'a> {
    let mut all = [None; OPERANDS];
    all[..N].copy_from_slice(&first);
    all
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
