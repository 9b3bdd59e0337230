//! Softmax and log-softmax over the middle of three dimensions.

use std::iter::StepBy;
use std::ops::Range;

use memcore::Result;
use memcore::backend::kernel::{Softmax, SoftmaxGrad};

use super::Memory;

/// Positions of the elements of each group, in operands of these sizes.
fn groups(dims: &[usize]) -> impl Iterator<Item = StepBy<Range<usize>>> {
    let (outer, n, inner) = (dims[0], dims[1], dims[2]);
    let firsts = (0..outer).flat_map(move |o| (0..inner).map(move |i| o * n * inner + i));
    firsts.map(move |first| (first..first + n * inner).step_by(inner))
}

pub(super) fn softmax(m: &mut Memory, k: &Softmax) -> Result<()> {
    let mut out = m.floats(&k.x)?;
    for group in groups(k.x.dims()) {
        let max = group.clone().map(|i| out[i]).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = group.clone().map(|i| (out[i] - max).exp()).sum();
        for i in group {
            out[i] = if k.log { out[i] - max - sum.ln() } else { (out[i] - max).exp() / sum };
        }
    }
    m.write(&k.out, &out)
}

pub(super) fn softmax_grad(m: &mut Memory, k: &SoftmaxGrad) -> Result<()> {
    let (y, grad) = (m.floats(&k.y)?, m.floats(&k.grad)?);
    let mut out = vec![0.0; y.len()];
    for group in groups(k.y.dims()) {
        let sum: f64 = group.clone().map(|i| if k.log { grad[i] } else { y[i] * grad[i] }).sum();
        for i in group {
            out[i] = if k.log { grad[i] - y[i].exp() * sum } else { y[i] * (grad[i] - sum) };
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
    fn rows_of_known_exponentials() {
        let b = Bench::new();
        let ln2 = std::f64::consts::LN_2;
        let x = b.f32(&[3, 2, 1], &[0.0, ln2, 1000.0, 1000.0, f64::NEG_INFINITY, 3.0]);
        let out = b.fresh(DType::F32, &[3, 2, 1]);
        b.run(Softmax { log: false, x, out });
        b.expect(&out, &[1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5, 0.0, 1.0]);
        b.run(Softmax { log: true, x, out });
        b.expect(&out, &[-3f64.ln(), (2.0 / 3.0f64).ln(), -ln2, -ln2, f64::NEG_INFINITY, 0.0]);
    }

    #[test]
    fn columns_of_known_exponentials() {
        let b = Bench::new();
        let ln2 = std::f64::consts::LN_2;
        let x = b.f32(&[2, 2, 2], &[0.0, 1000.0, ln2, 1000.0, 3.0, 0.0, f64::NEG_INFINITY, 0.0]);
        let out = b.fresh(DType::F32, &[2, 2, 2]);
        b.run(Softmax { log: false, x, out });
        b.expect(&out, &[1.0 / 3.0, 0.5, 2.0 / 3.0, 0.5, 1.0, 0.5, 0.0, 0.5]);
    }

    #[test]
    fn a_row_that_sees_nothing_is_nan() {
        let b = Bench::new();
        let x = b.f32(&[1, 2, 1], &[f64::NEG_INFINITY; 2]);
        let out = b.fresh(DType::F32, &[1, 2, 1]);
        b.run(Softmax { log: false, x, out });
        b.expect(&out, &[f64::NAN; 2]);
    }

    #[test]
    fn gradients_by_hand() {
        let b = Bench::new();
        let (y, grad) = (b.f64(&[1, 2, 1], &[0.25, 0.75]), b.f64(&[1, 2, 1], &[1.0, 3.0]));
        let out = b.fresh(DType::F64, &[1, 2, 1]);
        b.run(SoftmaxGrad { log: false, y, grad, out, workspace: None });
        b.expect(&out, &[0.25 * (1.0 - 2.5), 0.75 * (3.0 - 2.5)]);
        let y = b.f64(&[1, 2, 1], &[0.25f64.ln(), 0.75f64.ln()]);
        b.run(SoftmaxGrad { log: true, y, grad, out, workspace: None });
        b.expect(&out, &[1.0 - 0.25 * 4.0, 3.0 - 0.75 * 4.0]);
    }

    #[test]
    fn gradients_of_columns_are_those_of_their_rows() {
        let b = Bench::new();
        let (y, grad) = (b.f64(&[1, 2, 2], &[0.25, 0.5, 0.75, 0.5]), b.f64(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]));
        let out = b.fresh(DType::F64, &[1, 2, 2]);
        b.run(SoftmaxGrad { log: false, y, grad, out, workspace: None });
        b.expect(&out, &[0.25 * (1.0 - 2.5), 0.5 * (2.0 - 3.0), 0.75 * (3.0 - 2.5), 0.5 * (4.0 - 3.0)]);
    }
}
