//! Attention against plain loops in f64, over sizes that take several tiles each way.

use memcore::backend::kernel::{Attention, AttentionGrad};
use memcore::backend::{Backend, DeviceMemory, KernelCall, Operand, Region, validate};
use memcore::{DType, Layout};

use backend_cpu::Cpu;

struct Problem {
    /// b, h, hk, t, s, d, dv
    sizes: [usize; 7],
    causal: bool,
    masked: bool,
}

const SCALE: f64 = 0.3;

fn wave(n: usize, phase: f64) -> Vec<f64> {
    (0..n).map(|i| (i as f64 * 1.7 + phase).sin()).collect()
}

fn operand(cpu: &Cpu, values: &[f64], dims: &[usize]) -> Operand {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let segment = cpu.alloc_segment(bytes.len() as u64).unwrap();
    let region = Region { segment, offset: 0, len: bytes.len() as u64 };
    cpu.upload(&bytes, region).unwrap();
    Operand { region, dtype: DType::F64, layout: Layout::contiguous(dims).unwrap() }
}

fn fresh(cpu: &Cpu, dims: &[usize]) -> Operand {
    operand(cpu, &vec![f64::NAN; dims.iter().product()], dims)
}

fn values(cpu: &Cpu, x: &Operand) -> Vec<f64> {
    let mut bytes = vec![0; x.region.len as usize];
    cpu.download(x.region, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap())).collect()
}

fn launch(cpu: &Cpu, call: impl Into<KernelCall>) {
    let call = call.into();
    validate(&call).unwrap();
    cpu.launch(&call).unwrap();
}

/// Returns q, k, v, gradient and mask. The mask hides some keys, and all keys from every 40th query. The first tiles of keys are hidden
/// from some queries as a whole.
fn inputs(p: &Problem) -> [Vec<f64>; 5] {
    let [b, h, hk, t, s, d, dv] = p.sizes;
    let mut mask = wave(t * s, 0.4);
    for (at, x) in mask.iter_mut().enumerate() {
        let (i, j) = (at / s, at % s);
        if i % 40 == 3 || j % 5 == 2 || (i % 7 == 1 && j < 130) {
            *x = f64::NEG_INFINITY;
        }
    }
    [wave(b * h * t * d, 0.1), wave(b * hk * s * d, 0.9), wave(b * hk * s * dv, 2.0), wave(b * h * t * dv, 3.0), mask]
}

/// Elements between the rows of the mask's gradient.
const GAP: usize = 3;

/// Computes out, logsumexp, delta, dq, dk, dv and, if there is a mask, dmask by the kernels.
fn by_kernels(cpu: &Cpu, p: &Problem) -> [Vec<f64>; 7] {
    let [b, h, hk, t, s, d, dv] = p.sizes;
    let [q, k, v, grad, mask] = inputs(p);
    let (q, k) = (operand(cpu, &q, &[b, h, t, d]), operand(cpu, &k, &[b, hk, s, d]));
    let (v, grad) = (operand(cpu, &v, &[b, hk, s, dv]), operand(cpu, &grad, &[b, h, t, dv]));
    let mut mask = operand(cpu, &mask, &[t, s]);
    mask.layout = mask.layout.broadcast_to(&[b, h, t, s]).unwrap();
    let mask = p.masked.then_some(mask);
    let (out, logsumexp) = (fresh(cpu, &[b, h, t, dv]), fresh(cpu, &[b, h, t]));
    launch(cpu, Attention { scale: SCALE, causal: p.causal, q, k, v, mask, out, logsumexp: Some(logsumexp) });
    let [dq, dk, dv, delta, wide] =
        [q.dims(), k.dims(), v.dims(), &[b, h, t], &[b, h, t, s + GAP]].map(|dims| fresh(cpu, dims));
    let dmask = p.masked.then(|| Operand { layout: wide.layout.narrowed(3, 0, s).0, ..wide });
    launch(
        cpu,
        AttentionGrad {
            scale: SCALE,
            causal: p.causal,
            q,
            k,
            v,
            mask,
            out,
            logsumexp,
            grad,
            delta,
            dq,
            dk,
            dv,
            dmask,
            workspace: None,
        },
    );
    let [out, logsumexp, delta, dq, dk, dv, wide] = [out, logsumexp, delta, dq, dk, dv, wide].map(|x| values(cpu, &x));
    let rows = || wide.chunks(s + GAP).map(|row| row.split_at(s));
    assert!(rows().all(|(_, gap)| gap.iter().all(|x| x.is_nan())), "{:?}: written between rows", p.sizes);
    let dmask = if p.masked { rows().flat_map(|(row, _)| row).copied().collect() } else { Vec::new() };
    [out, logsumexp, delta, dq, dk, dv, dmask]
}

/// Computes the same results by their definition.
fn by_loops(p: &Problem) -> [Vec<f64>; 7] {
    let [b, h, hk, t, s, d, dv] = p.sizes;
    let [q, k, v, grad, mask] = inputs(p);
    let [mut out, mut logsumexp, mut delta] = [b * h * t * dv, b * h * t, b * h * t].map(|n| vec![0.0; n]);
    let [mut dq, mut dk, mut d_v] = [q.len(), k.len(), v.len()].map(|n| vec![0.0; n]);
    let mut dmask = Vec::new();
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let add = |to: &mut [f64], x: &[f64], factor: f64| to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
    for row in 0..b * h * t {
        let (head, i) = (row / t, row % t);
        let key_row = (head / h * hk + head % h / (h / hk)) * s;
        let (of_q, of_out) = (row * d..(row + 1) * d, row * dv..(row + 1) * dv);
        let keys = |j: usize| ((key_row + j) * d..(key_row + j + 1) * d, (key_row + j) * dv..(key_row + j + 1) * dv);
        let score = |j: usize| {
            let bias = if p.masked { mask[i * s + j] } else { 0.0 };
            let hidden = p.causal && j > i;
            if hidden { f64::NEG_INFINITY } else { SCALE * dot(&q[of_q.clone()], &k[keys(j).0]) + bias }
        };
        let scores: Vec<f64> = (0..s).map(score).collect();
        let sum: f64 = scores.iter().map(|x| x.exp()).sum();
        logsumexp[row] = sum.ln();
        let weights: Vec<f64> = scores.iter().map(|x| if sum == 0.0 { 0.0 } else { x.exp() / sum }).collect();
        (0..s).for_each(|j| add(&mut out[of_out.clone()], &v[keys(j).1], weights[j]));
        let g = &grad[of_out.clone()];
        delta[row] = dot(g, &out[of_out]);
        for (j, weight) in weights.iter().enumerate() {
            let (of_k, of_v) = keys(j);
            let ds = weight * (dot(g, &v[of_v.clone()]) - delta[row]);
            add(&mut d_v[of_v], g, *weight);
            add(&mut dq[of_q.clone()], &k[of_k.clone()], SCALE * ds);
            add(&mut dk[of_k], &q[of_q.clone()], SCALE * ds);
            dmask.extend(p.masked.then_some(ds));
        }
    }
    [out, logsumexp, delta, dq, dk, d_v, dmask]
}

#[test]
fn tiles_in_both_directions_give_the_definition_whatever_the_threads() {
    let problems = [
        Problem { sizes: [2, 4, 2, 100, 150, 20, 9], causal: false, masked: false },
        Problem { sizes: [1, 4, 2, 200, 200, 17, 33], causal: true, masked: false },
        Problem { sizes: [1, 2, 1, 150, 210, 16, 16], causal: true, masked: true },
        Problem { sizes: [1, 2, 1, 210, 150, 5, 40], causal: true, masked: true },
        Problem { sizes: [2, 3, 3, 90, 300, 8, 1], causal: false, masked: true },
        // Heads so wide that tiles must be small.
        Problem { sizes: [1, 2, 1, 40, 70, 1500, 700], causal: true, masked: false },
    ];
    let (one, four) = (Cpu::with_threads(1).unwrap(), Cpu::with_threads(4).unwrap());
    for p in &problems {
        let got = by_kernels(&one, p);
        assert!(got == by_kernels(&four, p), "{:?} differs between threads", p.sizes);
        let names = ["out", "logsumexp", "delta", "dq", "dk", "dv", "dmask"];
        for ((got, want), name) in got.iter().zip(by_loops(p)).zip(names) {
            assert_eq!(got.len(), want.len(), "{:?} {name}", p.sizes);
            for (at, (&got, want)) in got.iter().zip(want).enumerate() {
                let close = got == want || (got - want).abs() < 1e-11 * (1.0 + want.abs());
                assert!(close, "{:?} {name}[{at}]: {got} not {want}", p.sizes);
            }
        }
    }
}
