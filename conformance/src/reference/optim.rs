//! Fused optimizer steps and the loss scaler's kernels.

use memcore::Result;
use memcore::backend::Operand;
use memcore::backend::kernel::{AdamStep, SgdStep, Unscale, UpdateScale};

use super::Memory;

/// True if the scaler found an infinity, which skips the step.
fn skips(m: &Memory, found_inf: &Option<Operand>) -> Result<bool> {
    found_inf.as_ref().map_or(Ok(false), |x| Ok(m.scalar(x)? != 0.0))
}

pub(super) fn sgd_step(m: &mut Memory, k: &SgdStep) -> Result<()> {
    if skips(m, &k.found_inf)? {
        return Ok(());
    }
    let sign = if k.maximize { -1.0 } else { 1.0 };
    for t in k.tensors.iter() {
        let (mut p, grad, mut buffer) = (m.floats(&t.param)?, m.floats(&t.grad)?, m.optional(&t.momentum)?);
        for i in 0..p.len() {
            let mut g = sign * grad[i] + k.weight_decay * p[i];
            if let Some(buffer) = &mut buffer {
                buffer[i] = if k.first_step { g } else { k.momentum * buffer[i] + (1.0 - k.dampening) * g };
                g = if k.nesterov { g + k.momentum * buffer[i] } else { buffer[i] };
            }
            p[i] -= k.lr * g;
        }
        m.write(&t.param, &p)?;
        if let Some(buffer) = &buffer {
            m.write_optional(&t.momentum, buffer)?;
        }
    }
    Ok(())
}

pub(super) fn adam_step(m: &mut Memory, k: &AdamStep) -> Result<()> {
    if skips(m, &k.found_inf)? {
        return Ok(());
    }
    let ([beta1, beta2], sign) = (k.betas, if k.maximize { -1.0 } else { 1.0 });
    for t in k.tensors.iter() {
        let (mut p, grad, step) = (m.floats(&t.param)?, m.floats(&t.grad)?, m.scalar(&t.step)?);
        let (mut avg, mut sq) = (m.floats(&t.exp_avg)?, m.floats(&t.exp_avg_sq)?);
        let mut max_sq = m.optional(&t.max_exp_avg_sq)?;
        for i in 0..p.len() {
            let mut g = sign * grad[i];
            if k.decoupled {
                p[i] *= 1.0 - k.lr * k.weight_decay;
            } else {
                g += k.weight_decay * p[i];
            }
            avg[i] += (1.0 - beta1) * (g - avg[i]);
            sq[i] = beta2 * sq[i] + (1.0 - beta2) * g * g;
            let mut v = sq[i];
            if let Some(max_sq) = &mut max_sq {
                max_sq[i] = max_sq[i].max(v);
                v = max_sq[i];
            }
            let denominator = v.sqrt() / (1.0 - beta2.powf(step)).sqrt() + k.eps;
            p[i] -= k.lr / (1.0 - beta1.powf(step)) * avg[i] / denominator;
        }
        m.write(&t.param, &p)?;
        m.write(&t.exp_avg, &avg)?;
        m.write(&t.exp_avg_sq, &sq)?;
        if let Some(max_sq) = &max_sq {
            m.write_optional(&t.max_exp_avg_sq, max_sq)?;
        }
    }
    Ok(())
}

pub(super) fn unscale(m: &mut Memory, k: &Unscale) -> Result<()> {
    let inv_scale = m.scalar(&k.inv_scale)?;
    for grad in k.grads.iter() {
        let values = m.floats(grad)?;
        if values.iter().any(|x| !x.is_finite()) {
            m.write(&k.found_inf, &[1.0])?;
        }
        let scaled: Vec<f64> = values.iter().map(|x| x * inv_scale).collect();
        m.write(grad, &scaled)?;
    }
    Ok(())
}

pub(super) fn update_scale(m: &mut Memory, k: &UpdateScale) -> Result<()> {
    let (scale, tracker) = (m.scalar(&k.scale)?, m.scalar(&k.growth_tracker)? as i64 + 1);
    if m.scalar(&k.found_inf)? != 0.0 {
        m.write(&k.scale, &[scale * k.backoff_factor])?;
        return m.write_ints(&k.growth_tracker, &[0]);
    }
    if tracker != i64::from(k.growth_interval) {
        return m.write_ints(&k.growth_tracker, &[tracker]);
    }
    let grown = scale * k.growth_factor;
    if (grown as f32).is_finite() {
        m.write(&k.scale, &[grown])?;
    }
    m.write_ints(&k.growth_tracker, &[0])
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;
    use memcore::backend::kernel::{AdamTensors, SgdTensors};

    #[test]
    fn sgd_by_hand() {
        let b = Bench::new();
        let (param, grad, buffer) = (b.f32(&[1], &[1.0]), b.f32(&[1], &[0.5]), b.f32(&[1], &[2.0]));
        let mut step = SgdStep {
            tensors: [SgdTensors { param, grad, momentum: None }].into(),
            lr: 0.1,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            first_step: false,
            found_inf: None,
        };
        b.run(memcore::backend::KernelCall::SgdStep(step.clone()));
        b.expect(&param, &[0.95]);
        // g = 0.5 + 0.1·0.95 = 0.595; buffer = 0.9·2 + 0.5·0.595 = 2.0975; Nesterov: g + 0.9·buffer = 2.48275.
        step.tensors = [SgdTensors { param, grad, momentum: Some(buffer) }].into();
        (step.momentum, step.dampening, step.weight_decay, step.nesterov) = (0.9, 0.5, 0.1, true);
        b.run(memcore::backend::KernelCall::SgdStep(step.clone()));
        b.expect(&buffer, &[2.0975]);
        b.expect(&param, &[0.95 - 0.248275]);
        step.found_inf = Some(b.f32(&[], &[1.0]));
        b.run(memcore::backend::KernelCall::SgdStep(step.clone()));
        b.expect(&param, &[0.95 - 0.248275]);
        // The first step fills the buffer, whatever its contents.
        (step.found_inf, step.first_step, step.weight_decay, step.nesterov) = (None, true, 0.0, false);
        let (param, buffer) = (b.f32(&[1], &[1.0]), b.f32(&[1], &[f64::NAN]));
        step.tensors = [SgdTensors { param, grad, momentum: Some(buffer) }].into();
        b.run(memcore::backend::KernelCall::SgdStep(step));
        b.expect(&buffer, &[0.5]);
        b.expect(&param, &[0.95]);
    }

    #[test]
    fn adam_by_hand() {
        let b = Bench::new();
        let (param, grad) = (b.f32(&[1], &[1.0]), b.f32(&[1], &[0.5]));
        let (exp_avg, exp_avg_sq) = (b.f32(&[1], &[0.0]), b.f32(&[1], &[0.0]));
        let step = b.f32(&[], &[1.0]);
        let tensors = [AdamTensors { param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq: None, step }];
        let mut call = AdamStep {
            tensors: tensors.into(),
            lr: 0.1,
            betas: [0.9, 0.99],
            eps: 0.0,
            weight_decay: 0.0,
            decoupled: false,
            maximize: false,
            step_count: 1,
            found_inf: None,
        };
        // Adam's first step is lr·sign(grad), whatever the gradient's size.
        b.run(memcore::backend::KernelCall::AdamStep(call.clone()));
        b.expect(&param, &[0.9]);
        b.expect(&exp_avg, &[0.05]);
        b.expect(&exp_avg_sq, &[0.0025]);
        // AdamW: first p = 0.9·(1 − 0.1·0.5) = 0.855; then with t = 1 again, ascending: m = 0.05 − 0.1·0.55 = −0.005,
        // v = 0.99·0.0025 + 0.0025 = 0.004975; AMSGrad keeps the larger 0.01; p += 0.1/0.1·0.005/(√0.01/√0.01) = 0.005.
        let max = b.f32(&[1], &[0.01]);
        call.tensors = [AdamTensors { max_exp_avg_sq: Some(max), ..tensors[0] }].into();
        (call.weight_decay, call.decoupled, call.maximize) = (0.5, true, true);
        b.run(memcore::backend::KernelCall::AdamStep(call));
        b.expect(&exp_avg, &[-0.005]);
        b.expect(&exp_avg_sq, &[0.004975]);
        b.expect(&max, &[0.01]);
        b.expect(&param, &[0.86]);
    }

    #[test]
    fn the_scaler_by_hand() {
        let b = Bench::new();
        let (x, y) = (b.f32(&[2], &[2.0, 4.0]), b.put(DType::F16, &[1], &[f64::INFINITY]));
        let (inv_scale, found_inf) = (b.f32(&[], &[0.5]), b.f32(&[], &[0.0]));
        b.run(memcore::backend::KernelCall::Unscale(Unscale { grads: [x].into(), inv_scale, found_inf }));
        b.expect(&x, &[1.0, 2.0]);
        b.expect(&found_inf, &[0.0]);
        b.run(memcore::backend::KernelCall::Unscale(Unscale { grads: [x, y].into(), inv_scale, found_inf }));
        b.expect(&found_inf, &[1.0]);

        let (scale, growth_tracker) = (b.f32(&[], &[8.0]), b.put(DType::I32, &[], &[0.0]));
        let mut update = UpdateScale {
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2,
            scale,
            growth_tracker,
            found_inf,
        };
        b.run(memcore::backend::KernelCall::UpdateScale(update.clone()));
        b.expect(&scale, &[4.0]);
        update.found_inf = b.f32(&[], &[0.0]);
        b.run(memcore::backend::KernelCall::UpdateScale(update.clone()));
        b.expect(&growth_tracker, &[1.0]);
        b.run(memcore::backend::KernelCall::UpdateScale(update.clone()));
        b.expect(&scale, &[8.0]);
        b.expect(&growth_tracker, &[0.0]);
        // A scale that would overflow stays unchanged.
        (update.scale, update.growth_interval) = (b.f32(&[], &[3e38]), 1);
        b.run(memcore::backend::KernelCall::UpdateScale(update.clone()));
        assert_eq!(b.get(&update.scale), [f64::from(3e38f32)]);
    }
}
