//! Scaled dot-product attention, its gradients, and rotary embedding.

use memcore::Result;
use memcore::backend::Operand;
use memcore::backend::kernel::{Attention, AttentionGrad, Rope};

use super::Memory;

/// Sizes of an attention problem, and its scores.
struct Scores {
    b: usize,
    h: usize,
    hk: usize,
    t: usize,
    s: usize,
    d: usize,
    dv: usize,
    /// `scale·q·kᵀ + mask`, `[b, h, t, s]`; −inf for hidden keys.
    values: Vec<f64>,
}

impl Scores {
    fn new(m: &Memory, [q, k, v]: [&Operand; 3], mask: &Option<Operand>, scale: f64, causal: bool) -> Result<Self> {
        let ([b, h, t, d], [hk, s], dv) = (sizes(q), [k.dims()[1], k.dims()[2]], v.dims()[3]);
        let mut scores = Self { b, h, hk, t, s, d, dv, values: Vec::new() };
        let (q, k, mask) = (m.floats(q)?, m.floats(k)?, m.optional(mask)?);
        let mut values = Vec::with_capacity(b * h * t * s);
        scores.each_pair(|row, key, i, j| {
            let product: f64 = (0..d).map(|e| q[row * d + e] * k[key * d + e]).sum();
            let bias = mask.as_ref().map_or(0.0, |mask| mask[row * s + j]);
            values.push(if causal && j > i { f64::NEG_INFINITY } else { scale * product + bias });
        });
        scores.values = values;
        Ok(scores)
    }

    /// Calls `f` with the row of `q` (`[b, h, t]`), the row of `k` (`[b, hk, s]`), `i` and `j`, for every score in
    /// order.
    fn each_pair(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        for head in 0..self.b * self.h {
            let key_head = head / self.h * self.hk + head % self.h / (self.h / self.hk);
            for i in 0..self.t {
                for j in 0..self.s {
                    f(head * self.t + i, key_head * self.s + j, i, j);
                }
            }
        }
    }
}

fn sizes(q: &Operand) -> [usize; 4] {
    let d = q.dims();
    [d[0], d[1], d[2], d[3]]
}

pub(super) fn attention(m: &mut Memory, k: &Attention) -> Result<()> {
    let scores = Scores::new(m, [&k.q, &k.k, &k.v], &k.mask, k.scale, k.causal)?;
    let (v, dv) = (m.floats(&k.v)?, scores.dv);
    let rows = scores.b * scores.h * scores.t;
    // The largest score of a row, and the sum of all exponentials relative to it.
    let mut shares = vec![(f64::NEG_INFINITY, 1.0); rows];
    if scores.s > 0 {
        for (share, row) in shares.iter_mut().zip(scores.values.chunks(scores.s)) {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if max > f64::NEG_INFINITY {
                *share = (max, row.iter().map(|x| (x - max).exp()).sum::<f64>());
            }
        }
    }
    let mut out = vec![0.0; rows * dv];
    scores.each_pair(|row, key, _, j| {
        let (max, sum) = shares[row];
        let p = probability(scores.values[row * scores.s + j], max) / sum;
        (0..dv).for_each(|e| out[row * dv + e] += p * v[key * dv + e]);
    });
    m.write(&k.out, &out)?;
    let logsumexp: Vec<f64> = shares.iter().map(|(max, sum)| max + sum.ln()).collect();
    m.write_optional(&k.logsumexp, &logsumexp)
}

/// `e^(score − shift)`; 0 where the score is hidden.
fn probability(score: f64, shift: f64) -> f64 {
    if score == f64::NEG_INFINITY { 0.0 } else { (score - shift).exp() }
}

pub(super) fn attention_grad(m: &mut Memory, k: &AttentionGrad) -> Result<()> {
    let scores = Scores::new(m, [&k.q, &k.k, &k.v], &k.mask, k.scale, k.causal)?;
    let (q, key, v) = (m.floats(&k.q)?, m.floats(&k.k)?, m.floats(&k.v)?);
    let (out, grad, logsumexp) = (m.floats(&k.out)?, m.floats(&k.grad)?, m.floats(&k.logsumexp)?);
    let (d, dv) = (scores.d, scores.dv);
    let delta: Vec<f64> =
        (0..logsumexp.len()).map(|row| (row * dv..(row + 1) * dv).map(|at| grad[at] * out[at]).sum()).collect();
    let (mut d_q, mut d_k, mut d_v) = (vec![0.0; q.len()], vec![0.0; key.len()], vec![0.0; v.len()]);
    let mut d_mask = Vec::with_capacity(scores.values.len());
    scores.each_pair(|row, col, _, j| {
        let seen = logsumexp[row] >= AttentionGrad::LOWEST_LOGSUMEXP;
        let p = if seen { probability(scores.values[row * scores.s + j], logsumexp[row]) } else { 0.0 };
        let through: f64 = (0..dv).map(|e| grad[row * dv + e] * v[col * dv + e]).sum();
        let ds = p * (through - delta[row]);
        d_mask.push(ds);
        (0..dv).for_each(|e| d_v[col * dv + e] += p * grad[row * dv + e]);
        for e in 0..d {
            d_q[row * d + e] += k.scale * ds * key[col * d + e];
            d_k[col * d + e] += k.scale * ds * q[row * d + e];
        }
    });
    m.write(&k.delta, &delta)?;
    m.write(&k.dq, &d_q)?;
    m.write(&k.dk, &d_k)?;
    m.write(&k.dv, &d_v)?;
    m.write_optional(&k.dmask, &d_mask)
}

pub(super) fn rope(m: &mut Memory, k: &Rope) -> Result<()> {
    let (x, cos, sin) = (m.floats(&k.x)?, m.floats(&k.cos)?, m.floats(&k.sin)?);
    let [_, t, h, d] = sizes(&k.x);
    let (half, sign) = (d / 2, if k.inverse { -1.0 } else { 1.0 });
    let mut out = vec![0.0; x.len()];
    if half > 0 {
        for (vector, (x, out)) in x.chunks(d).zip(out.chunks_mut(d)).enumerate() {
            let position = vector / h % t;
            for i in 0..half {
                let (c, s) = (cos[position * half + i], sign * sin[position * half + i]);
                out[i] = x[i] * c - x[i + half] * s;
                out[i + half] = x[i + half] * c + x[i] * s;
            }
        }
    }
    m.write(&k.out, &out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::{DType, Layout};

    fn attend(b: &Bench, causal: bool, q: Operand, k: Operand, v: Operand, mask: Option<Operand>) -> [Vec<f64>; 2] {
        let [n, h, t, _] = sizes(&q);
        let out = b.fresh(DType::F64, &[n, h, t, v.dims()[3]]);
        let logsumexp = b.fresh(DType::F64, &[n, h, t]);
        b.run(Attention { scale: 1.0, causal, q, k, v, mask, out, logsumexp: Some(logsumexp) });
        [b.get(&out), b.get(&logsumexp)]
    }

    #[track_caller]
    fn close(got: &[f64], want: &[f64]) {
        let same = |(g, w): (&f64, &f64)| g == w || (g - w).abs() < 1e-12;
        assert!(got.len() == want.len() && got.iter().zip(want).all(same), "{got:?}, expected {want:?}");
    }

    #[test]
    fn weights_of_a_third_and_two_thirds() {
        let b = Bench::new();
        let ln2 = std::f64::consts::LN_2;
        // Scores 0 and ln 2 for both queries.
        let q = b.f64(&[1, 1, 2, 1], &[1.0, 1.0]);
        let k = b.f64(&[1, 1, 2, 1], &[0.0, ln2]);
        let v = b.f64(&[1, 1, 2, 1], &[3.0, 6.0]);
        let [out, lse] = attend(&b, false, q, k, v, None);
        close(&out, &[5.0, 5.0]);
        close(&lse, &[3f64.ln(), 3f64.ln()]);
        // Causal: the first query sees only the first key.
        let [out, lse] = attend(&b, true, q, k, v, None);
        close(&out, &[3.0, 5.0]);
        close(&lse, &[0.0, 3f64.ln()]);
        // A mask that hides everything from the first query gives 0, not NaN.
        let hide = f64::NEG_INFINITY;
        let mask = b.f64(&[1, 1, 2, 2], &[hide, hide, ln2, 0.0]);
        let [out, lse] = attend(&b, false, q, k, v, Some(mask));
        close(&out, &[0.0, 4.5]);
        close(&lse, &[hide, 4f64.ln()]);
    }

    #[test]
    fn query_heads_share_key_heads_in_groups() {
        let b = Bench::new();
        let q = b.f64(&[1, 4, 1, 1], &[1.0; 4]);
        let k = b.f64(&[1, 2, 1, 1], &[1.0; 2]);
        let v = b.f64(&[1, 2, 1, 1], &[7.0, 9.0]);
        let [out, _] = attend(&b, false, q, k, v, None);
        close(&out, &[7.0, 7.0, 9.0, 9.0]);
    }

    /// Central differences of `Σ grad·out` against the gradient kernel, with groups, a mask and causality.
    #[test]
    fn gradients_are_central_differences() {
        let wave = |n: usize, phase: f64| -> Vec<f64> { (0..n).map(|i| (i as f64 * 1.7 + phase).sin()).collect() };
        let mut bias = wave(2 * 3 * 3, 0.4);
        // Hides the first key from the last query of the second head.
        bias[15] = f64::NEG_INFINITY;
        let inputs = [wave(2 * 3 * 2, 0.1), wave(3 * 2, 0.9), wave(3 * 2, 2.0), bias];
        let grad = wave(2 * 3 * 2, 3.0);
        let place = |b: &Bench, inputs: &[Vec<f64>; 4]| {
            let (q, mask) = (b.f64(&[1, 2, 3, 2], &inputs[0]), b.f64(&[1, 2, 3, 3], &inputs[3]));
            (q, b.f64(&[1, 1, 3, 2], &inputs[1]), b.f64(&[1, 1, 3, 2], &inputs[2]), Some(mask))
        };
        let loss = |inputs: &[Vec<f64>; 4]| {
            let b = Bench::new();
            let (q, k, v, mask) = place(&b, inputs);
            let [out, _] = attend(&b, true, q, k, v, mask);
            out.iter().zip(&grad).map(|(o, g)| o * g).sum::<f64>()
        };
        let b = Bench::new();
        let (q, k, v, mask) = place(&b, &inputs);
        let [out, lse] = attend(&b, true, q, k, v, mask);
        let [dq, dk, dv, dmask] = [q.dims(), k.dims(), v.dims(), &[1, 2, 3, 3]].map(|dims| b.fresh(DType::F64, dims));
        b.run(AttentionGrad {
            scale: 1.0,
            causal: true,
            q,
            k,
            v,
            mask,
            out: b.f64(q.dims(), &out),
            logsumexp: b.f64(&[1, 2, 3], &lse),
            grad: b.f64(q.dims(), &grad),
            delta: b.fresh(DType::F64, &[1, 2, 3]),
            dq,
            dk,
            dv,
            dmask: Some(dmask),
            workspace: None,
        });
        for (which, d) in [dq, dk, dv, dmask].iter().enumerate() {
            for (i, got) in b.get(d).into_iter().enumerate() {
                let (mut up, mut down) = (inputs.clone(), inputs.clone());
                up[which][i] += 1e-6;
                down[which][i] -= 1e-6;
                let want = (loss(&up) - loss(&down)) / 2e-6;
                assert!((got - want).abs() < 1e-8, "input {which}[{i}]: {got} against {want}");
            }
        }
    }

    #[test]
    fn rope_turns_and_turns_back() {
        let b = Bench::new();
        let x = b.f64(&[1, 2, 1, 2], &[1.0, 0.0, 3.0, 4.0]);
        // Position 0 is not rotated, position 1 by a right angle.
        let (cos, sin) = (b.f64(&[2, 1], &[1.0, 0.0]), b.f64(&[2, 1], &[0.0, 1.0]));
        let (out, back) = (b.fresh(DType::F64, &[1, 2, 1, 2]), b.fresh(DType::F64, &[1, 2, 1, 2]));
        b.run(Rope { inverse: false, x, cos, sin, out });
        b.expect(&out, &[1.0, 0.0, -4.0, 3.0]);
        b.run(Rope { inverse: true, x: out, cos, sin, out: back });
        b.expect(&back, &[1.0, 0.0, 3.0, 4.0]);
        assert_eq!(x.layout, Layout::contiguous(&[1, 2, 1, 2]).unwrap());
    }
}
