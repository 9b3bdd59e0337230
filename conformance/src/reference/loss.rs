//! Negative log-likelihood of class indices.

use memcore::Result;
use memcore::backend::Operand;
use memcore::backend::kernel::{NllLoss, NllLossGrad, Reduction};

use super::Memory;

/// Examples, classes, positions of an example.
fn shape(x: &Operand) -> [usize; 3] {
    [x.dims()[0], x.dims()[1], x.dims()[2]]
}

pub(super) fn nll_loss(m: &mut Memory, k: &NllLoss) -> Result<()> {
    let (log_probs, target) = (m.floats(&k.log_probs)?, m.ints(&k.target)?);
    let [_, classes, inner] = shape(&k.log_probs);
    let loss = |(i, &t): (usize, &i64)| {
        if t == k.ignore_index {
            0.0
        } else if (0..classes as i64).contains(&t) {
            -log_probs[(i / inner * classes + t as usize) * inner + i % inner]
        } else {
            f64::NAN
        }
    };
    let losses: Vec<f64> = target.iter().enumerate().map(loss).collect();
    let counted = target.iter().filter(|&&t| t != k.ignore_index).count() as f64;
    let sum: f64 = losses.iter().sum();
    match k.reduction {
        Reduction::None => m.write(&k.out, &losses)?,
        Reduction::Mean => m.write(&k.out, &[sum / counted])?,
        Reduction::Sum => m.write(&k.out, &[sum])?,
    }
    m.write(&k.total_weight, &[counted])
}

pub(super) fn nll_loss_grad(m: &mut Memory, k: &NllLossGrad) -> Result<()> {
    let (grad, target) = (m.floats(&k.grad)?, m.ints(&k.target)?);
    let [_, classes, inner] = shape(&k.out);
    let scale = if k.reduction == Reduction::Mean { 1.0 / m.scalar(&k.total_weight)? } else { 1.0 };
    let mut out = vec![0.0; k.out.numel()];
    for (i, &t) in target.iter().enumerate() {
        if t != k.ignore_index && (0..classes as i64).contains(&t) {
            let grad = if k.reduction == Reduction::None { grad[i] } else { grad[0] };
            out[(i / inner * classes + t as usize) * inner + i % inner] = -grad * scale;
        }
    }
    m.write(&k.out, &out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    #[test]
    fn losses_and_gradients_by_hand() {
        let b = Bench::new();
        let log_probs = b.f32(&[3, 2, 1], &[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
        let target = b.put(DType::I64, &[3, 1], &[1.0, -100.0, 0.0]);
        let total_weight = b.fresh(DType::F32, &[]);
        // Reduction, loss, incoming gradient, gradient.
        type Expected<'a> = (Reduction, &'a [f64], &'a [f64], &'a [f64]);
        let cases: [Expected<'_>; 3] = [
            (Reduction::None, &[2.0, 0.0, 5.0], &[1.0, 2.0, 3.0], &[0.0, -1.0, 0.0, 0.0, -3.0, 0.0]),
            (Reduction::Sum, &[7.0], &[2.0], &[0.0, -2.0, 0.0, 0.0, -2.0, 0.0]),
            (Reduction::Mean, &[3.5], &[2.0], &[0.0, -1.0, 0.0, 0.0, -1.0, 0.0]),
        ];
        for (reduction, want, grad, want_grad) in cases {
            let dims: &[usize] = if reduction == Reduction::None { &[3, 1] } else { &[] };
            let out = b.fresh(DType::F32, dims);
            b.run(NllLoss { reduction, ignore_index: -100, log_probs, target, out, total_weight });
            b.expect(&out, want);
            b.expect(&total_weight, &[2.0]);
            let (grad, dx) = (b.f32(dims, grad), b.fresh(DType::F32, &[3, 2, 1]));
            b.run(NllLossGrad { reduction, ignore_index: -100, grad, target, total_weight, out: dx });
            b.expect(&dx, want_grad);
        }
    }

    #[test]
    fn classes_lie_before_the_positions() {
        let b = Bench::new();
        let log_probs = b.f32(&[1, 2, 3], &[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
        let target = b.put(DType::I64, &[1, 3], &[1.0, -100.0, 0.0]);
        let (out, total_weight) = (b.fresh(DType::F32, &[1, 3]), b.fresh(DType::F32, &[]));
        let reduction = Reduction::None;
        b.run(NllLoss { reduction, ignore_index: -100, log_probs, target, out, total_weight });
        b.expect(&out, &[4.0, 0.0, 3.0]);
        let (grad, dx) = (b.f32(&[1, 3], &[1.0, 2.0, 3.0]), b.fresh(DType::F32, &[1, 2, 3]));
        b.run(NllLossGrad { reduction, ignore_index: -100, grad, target, total_weight, out: dx });
        b.expect(&dx, &[0.0, 0.0, -3.0, -1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_target_outside_the_classes_is_nan() {
        let b = Bench::new();
        let (log_probs, target) = (b.f32(&[1, 2, 1], &[-1.0, -2.0]), b.put(DType::I64, &[1, 1], &[2.0]));
        let (out, total_weight) = (b.fresh(DType::F32, &[]), b.fresh(DType::F32, &[]));
        b.run(NllLoss { reduction: Reduction::Mean, ignore_index: -100, log_probs, target, out, total_weight });
        b.expect(&out, &[f64::NAN]);
    }
}
