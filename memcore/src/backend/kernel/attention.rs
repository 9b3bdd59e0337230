//! Fused attention and rotary embedding.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// Scaled dot-product attention without the score matrix: `out = softmax(scale·q @ kᵀ + mask) @ v`. With `logsumexp`,
/// also the logarithm of each row's denominator.
///
/// `q` is `[b, h, t, d]`, `k` `[b, hk, s, d]`, `v` `[b, hk, s, dv]`, `out` `[b, h, t, dv]`, all with any strides whose last one is 1 (or
/// whose last size is 1). Query head `i` reads key/value head `i / (h/hk)` (grouped queries). With `causal`, position `i` sees keys `j ≤ i`
/// (aligned at the top left, as PyTorch's). A row that sees nothing gives 0 and a logsumexp of −inf.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Factor of the scores.
    pub scale: f64,
    /// Hides later keys.
    pub causal: bool,
    /// `[b, h, t, d]`
    pub q: Operand,
    /// `[b, hk, s, d]`
    pub k: Operand,
    /// `[b, hk, s, dv]`
    pub v: Operand,
    /// Added to the scores; broadcastable to `[b, h, t, s]` by strides of 0.
    pub mask: Option<Operand>,
    /// `[b, h, t, dv]`
    pub out: Operand,
    /// f32 (f64 for f64 inputs), `[b, h, t]`, contiguous. Only [`AttentionGrad`] needs it.
    pub logsumexp: Option<Operand>,
}
kernel!(Attention, "attention", in_place: false, [scale, causal], { q: Read, k: Read, v: Read, mask: Read, out: Write, logsumexp: Write }, flops: |k| flops(&k.q, &k.v, k.causal));
impl Attention {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        check_qkv(c, &self.q, &self.k, &self.v)?;
        let (q, v) = (self.q.dims(), self.v.dims());
        like(c, "out", &self.out, &self.q, &[q[0], q[1], q[2], v[3]])?;
        check_mask(c, "mask", &self.mask, &self.q, &self.k)?;
        let Some(logsumexp) = &self.logsumexp else { return Ok(()) };
        check_rows(c, "logsumexp", logsumexp, &self.q)
    }
}

/// Gradients of [`Attention`], recomputing the scores. With `p = e^(scores − logsumexp)` and `delta = Σ grad·out` per row:
/// `dv = pᵀ @ grad`, `ds = p·(grad @ vᵀ − delta)`, `dq = scale·ds @ k`, `dk = scale·dsᵀ @ q`, summed over the queries of a group; `dmask = ds`.
///
/// A row whose logsumexp is below [`AttentionGrad::LOWEST_LOGSUMEXP`] has `p = 0`.
#[derive(Clone, Debug)]
pub struct AttentionGrad {
    /// Factor of the scores.
    pub scale: f64,
    /// Hides later keys.
    pub causal: bool,
    /// `[b, h, t, d]`
    pub q: Operand,
    /// `[b, hk, s, d]`
    pub k: Operand,
    /// `[b, hk, s, dv]`
    pub v: Operand,
    /// Same mask as in forward.
    pub mask: Option<Operand>,
    /// Forward's result, `[b, h, t, dv]`.
    pub out: Operand,
    /// Forward's logsumexp, `[b, h, t]`.
    pub logsumexp: Operand,
    /// Gradient of `out`.
    pub grad: Operand,
    /// Scratch in the type of `logsumexp`, `[b, h, t]`.
    pub delta: Operand,
    /// Gradient of `q`.
    pub dq: Operand,
    /// Gradient of `k`.
    pub dk: Operand,
    /// Gradient of `v`.
    pub dv: Operand,
    /// Gradient of the scores before the softmax, `[b, h, t, s]`, any strides that keep its elements apart. Present
    /// only with a mask whose gradient is wanted.
    pub dmask: Option<Operand>,
    /// Scratch that core allocated for this call.
    pub workspace: Option<Operand>,
}
kernel!(AttentionGrad, "attention_grad", in_place: false, [scale, causal], { q: Read, k: Read, v: Read, mask: Read, out: Read, logsumexp: Read, grad: Read, delta: Write, dq: Write, dk: Write, dv: Write, dmask: Write, workspace: Workspace }, flops: |k| 5 * flops(&k.q, &k.v, k.causal) / 2);
impl AttentionGrad {
    /// −2²⁴. Masks also hide with large negative numbers (−1e9, the lowest of a type). If they hide a whole row, its
    /// scores are so low that f32 cannot represent the logarithm of their count beside them, and `p` could be anything
    /// up to infinity.
    pub const LOWEST_LOGSUMEXP: f64 = -16_777_216.0;

    fn check_shapes(&self, c: &Check) -> Result<()> {
        check_qkv(c, &self.q, &self.k, &self.v)?;
        let (q, v) = (self.q.dims(), self.v.dims());
        for (name, x) in [("out", &self.out), ("grad", &self.grad)] {
            like(c, name, x, &self.q, &[q[0], q[1], q[2], v[3]])?;
        }
        for (name, x, of) in [("dq", &self.dq, &self.q), ("dk", &self.dk, &self.k), ("dv", &self.dv, &self.v)] {
            like(c, name, x, &self.q, of.dims())?;
        }
        check_mask(c, "mask", &self.mask, &self.q, &self.k)?;
        check_mask(c, "dmask", &self.dmask, &self.q, &self.k)?;
        c.that(self.mask.is_some() || self.dmask.is_none(), "dmask", || "a gradient of no mask".to_string())?;
        check_rows(c, "logsumexp", &self.logsumexp, &self.q)?;
        check_rows(c, "delta", &self.delta, &self.q)
    }
}

/// Rotary position embedding of `x` `[b, t, h, d]`, any strides, by half-rotation (as in Llama). With `i < d/2`,
/// `out[i] = x[i]·cos[t, i] − x[i + d/2]·sin[t, i]` and `out[i + d/2] = x[i + d/2]·cos[t, i] + x[i]·sin[t, i]`.
/// `inverse` rotates back by changing the sign of `sin`; that is the gradient.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Rotates back.
    pub inverse: bool,
    /// `[b, t, h, d]`, d even.
    pub x: Operand,
    /// `[t, d/2]`, contiguous, f32 (f64 for f64 inputs).
    pub cos: Operand,
    /// `[t, d/2]`, contiguous, same type as `cos`.
    pub sin: Operand,
    /// `[b, t, h, d]`
    pub out: Operand,
}
kernel!(Rope, "rope", in_place: false, [inverse], { x: Read, cos: Read, sin: Read, out: Write }, flops: |k| 3 * k.out.numel() as u64);
impl Rope {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("x", &self.x, 4)?;
        c.float("x", &self.x)?;
        c.dims("out", &self.out, self.x.dims())?;
        c.dtype("out", &self.out, self.x.dtype)?;
        let d = self.x.dims();
        c.that(d[3].is_multiple_of(2), "x", || format!("last size {} is odd", d[3]))?;
        for (name, table) in [("cos", &self.cos), ("sin", &self.sin)] {
            c.dtype(name, table, self.x.dtype.accumulator())?;
            c.dense(name, table, &[d[1], d[3] / 2])?;
        }
        Ok(())
    }
}

/// Of the scores that are seen: with `causal`, query `i` sees `i + 1` keys.
fn flops(q: &Operand, v: &Operand, causal: bool) -> u64 {
    let (q, v) = (q.dims(), v.dims());
    let (t, s) = (q[2], v[2]);
    let least = t.min(s);
    let seen = if causal { least * (least + 1) / 2 + (t - least) * s } else { t * s };
    2 * (q[0] * q[1] * seen * (q[3] + v[3])) as u64
}

fn check_qkv(c: &Check, q: &Operand, k: &Operand, v: &Operand) -> Result<()> {
    for (name, x) in [("q", q), ("k", k), ("v", v)] {
        c.rank(name, x, 4)?;
        like(c, name, x, q, x.dims())?;
    }
    let (qd, kd, vd) = (q.dims(), k.dims(), v.dims());
    c.dims("k", k, &[qd[0], kd[1], kd[2], qd[3]])?;
    c.dims("v", v, &[qd[0], kd[1], kd[2], vd[3]])?;
    c.that(kd[1] > 0 && qd[1] % kd[1] == 0, "k", || format!("{} query heads over {} key heads", qd[1], kd[1]))
}

fn like(c: &Check, name: &'static str, x: &Operand, q: &Operand, dims: &[usize]) -> Result<()> {
    c.dims(name, x, dims)?;
    c.float(name, x)?;
    c.dtype(name, x, q.dtype)?;
    c.that(x.layout.strides()[3] == 1 || x.dims()[3] <= 1 || x.numel() == 0, name, || {
        format!("{:?}: last stride is not 1", x.layout)
    })
}

fn check_mask(c: &Check, name: &'static str, mask: &Option<Operand>, q: &Operand, k: &Operand) -> Result<()> {
    let Some(mask) = mask else { return Ok(()) };
    let (q_dims, k_dims) = (q.dims(), k.dims());
    c.dtype(name, mask, q.dtype)?;
    c.dims(name, mask, &[q_dims[0], q_dims[1], q_dims[2], k_dims[2]])
}

fn check_rows(c: &Check, name: &'static str, x: &Operand, q: &Operand) -> Result<()> {
    c.dtype(name, x, if q.dtype == DType::F64 { DType::F64 } else { DType::F32 })?;
    c.dense(name, x, &q.dims()[..3])
}

#[cfg(test)]
mod tests {
    use super::flops;
    use crate::backend::{Operand, Region, SegmentId};
    use crate::{DType, Layout};

    #[test]
    fn what_is_hidden_is_not_counted() {
        let operand = |dims: [usize; 4]| {
            let layout = Layout::contiguous(&dims).unwrap();
            Operand { region: Region { segment: SegmentId(0), offset: 0, len: 0 }, dtype: DType::F32, layout }
        };
        for (t, s) in [(5, 5), (7, 3), (3, 8), (1, 1)] {
            let (q, v) = (operand([2, 3, t, 4]), operand([2, 3, s, 6]));
            let seen: usize = (0..t).map(|i| (i + 1).min(s)).sum();
            assert_eq!(flops(&q, &v, true), (2 * 2 * 3 * seen * 10) as u64, "{t} {s}");
            assert_eq!(flops(&q, &v, false), (2 * 2 * 3 * t * s * 10) as u64);
        }
    }
}
