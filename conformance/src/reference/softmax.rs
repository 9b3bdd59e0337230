//! Softmax and log-softmax over rows.

use memcore::Result;
use memcore::backend::kernel::{Softmax, SoftmaxGrad};

use super::Memory;

pub(super) fn softmax(m: &mut Memory, k: &Softmax) -> Result<()> {
    let mut out = m.floats(&k.x)?;
    let n = k.x.dims()[1];
    for row in out.chunks_mut(n.max(1)) {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
        for x in row {
            *x = if k.log { *x - max - sum.ln() } else { (*x - max).exp() / sum };
        }
    }
    m.write(&k.out, &out)
}

pub(super) fn softmax_grad(m: &mut Memory, k: &SoftmaxGrad) -> Result<()> {
    let (y, grad) = (m.floats(&k.y)?, m.floats(&k.grad)?);
    let n = k.y.dims()[1].max(1);
    let mut out = Vec::with_capacity(y.len());
    for (y, grad) in y.chunks(n).zip(grad.chunks(n)) {
        let sum: f64 = if k.log { grad.iter().sum() } else { y.iter().zip(grad).map(|(y, g)| y * g).sum() };
        out.extend(y.iter().zip(grad).map(|(y, g)| if k.log { g - y.exp() * sum } else { y * (g - sum) }));
    }
    m.write(&k.out, &out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    #[test]
    fn rows_of_known_exponentials() {
        let b = Bench::new();
        let ln2 = std::f64::consts::LN_2;
        let x = b.f32(&[3, 2], &[0.0, ln2, 1000.0, 1000.0, f64::NEG_INFINITY, 3.0]);
        let out = b.fresh(DType::F32, &[3, 2]);
        b.run(Softmax { log: false, x, out });
        b.expect(&out, &[1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5, 0.0, 1.0]);
        b.run(Softmax { log: true, x, out });
        b.expect(&out, &[-3f64.ln(), (2.0 / 3.0f64).ln(), -ln2, -ln2, f64::NEG_INFINITY, 0.0]);
    }

    #[test]
    fn a_row_that_sees_nothing_is_nan() {
        let b = Bench::new();
        let x = b.f32(&[1, 2], &[f64::NEG_INFINITY; 2]);
        let out = b.fresh(DType::F32, &[1, 2]);
        b.run(Softmax { log: false, x, out });
        b.expect(&out, &[f64::NAN; 2]);
    }

    #[test]
    fn gradients_by_hand() {
        let b = Bench::new();
        let (y, grad) = (b.f64(&[1, 2], &[0.25, 0.75]), b.f64(&[1, 2], &[1.0, 3.0]));
        let out = b.fresh(DType::F64, &[1, 2]);
        b.run(SoftmaxGrad { log: false, y, grad, out, workspace: None });
        b.expect(&out, &[0.25 * (1.0 - 2.5), 0.75 * (3.0 - 2.5)]);
        let y = b.f64(&[1, 2], &[0.25f64.ln(), 0.75f64.ln()]);
        b.run(SoftmaxGrad { log: true, y, grad, out, workspace: None });
        b.expect(&out, &[1.0 - 0.25 * 4.0, 3.0 - 0.75 * 4.0]);
    }
}
