use memcore::backend::kernel::Matmul;
use memcore::{DType, Layout};

use crate::bench::{Bench, noise};

/// Layout of a `[batch, rows, cols]` operand: plain, transposed, with gaps between rows, or one matrix for the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum As {
    Plain,
    Transposed,
    Gaps,
    Shared,
}

fn layout(dims: [usize; 3], how: As) -> Layout {
    let [_, m, n] = dims;
    let strides = match how {
        As::Plain => return Layout::contiguous(&dims).unwrap(),
        As::Transposed => [m * n, 1, m],
        As::Gaps => [m * (n + 3) + 5, n + 3, 1],
        As::Shared => [0, n, 1],
    };
    Layout::strided(&dims, &strides).unwrap()
}

struct Case {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    a: As,
    b: As,
    out: As,
    alpha: f64,
    beta: f64,
    bias: bool,
}

fn check(bench: &mut Bench, dtype: DType, c: &Case) {
    let Case { batch, m, n, k, .. } = *c;
    let a_layout = layout([batch, m, k], c.a);
    let b_layout = layout([batch, k, n], c.b);
    let distinct = |values: &mut Vec<f64>, how: As, size: usize| {
        if how == As::Shared {
            let (first, rest) = values.split_at_mut(size);
            rest.chunks_mut(size.max(1)).for_each(|chunk| chunk.copy_from_slice(first));
        }
    };
    let (mut av, mut bv) = (noise(batch * m * k, 1), noise(batch * k * n, 2));
    distinct(&mut av, c.a, m * k);
    distinct(&mut bv, c.b, k * n);
    let (ov, biasv) = (noise(batch * m * n, 3), noise(n, 4));
    let a = bench.operand(dtype, a_layout, &av);
    let b = bench.operand(dtype, b_layout, &bv);
    let bias = c.bias.then(|| bench.operand(dtype, Layout::contiguous(&[n]).unwrap(), &biasv));
    let out_layout = layout([batch, m, n], c.out);
    let out = if c.beta == 0.0 { bench.garbage(dtype, out_layout) } else { bench.operand(dtype, out_layout, &ov) };
    let mut want = vec![0.0; batch * m * n];
    for (i, w) in want.iter_mut().enumerate() {
        let (t, r, j) = (i / n / m, i / n % m, i % n);
        let product: f64 = (0..k).map(|p| av[(t * m + r) * k + p] * bv[(t * k + p) * n + j]).sum();
        *w = c.alpha * product + if c.beta == 0.0 { 0.0 } else { c.beta * ov[i] } + if c.bias { biasv[j] } else { 0.0 };
    }
    bench.launch(Matmul { alpha: c.alpha, beta: c.beta, a, b, bias, out, workspace: None });
    let what = format!(
        "{dtype} {batch}×[{m}×{k}]·[{k}×{n}] {:?} {:?} {:?} {} {} {}",
        c.a, c.b, c.out, c.alpha, c.beta, c.bias
    );
    let roundings = if dtype.is_half() { 1.0 } else { 4.0 + (k as f64).sqrt() };
    bench.assert_close(&what, &out, &want, roundings);
}

const TYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

#[test]
fn every_way_agrees_with_the_plain_sum() {
    use As::*;
    // Tiny; inner products (short m, short n, several blocks of k); sums of rows (short m, short k); tiles and their edges.
    let sizes = [
        (1, 1, 1, 1),
        (3, 2, 3, 4),
        (1, 32, 1, 10),
        (1, 1, 300, 40),
        (1, 5, 37, 300),
        (2, 50, 7, 129),
        (1, 3, 5, 9001),
        (1, 3, 700, 50),
        (1, 70, 333, 6),
        (1, 130, 270, 300),
        (4, 33, 65, 20),
    ];
    let mut strides = Vec::new();
    for a in [Plain, Transposed, Gaps, Shared] {
        for b in [Plain, Transposed, Gaps, Shared] {
            strides.push((a, b));
        }
    }
    for dtype in TYPES {
        for (batch, m, n, k) in sizes {
            let mut bench = Bench::new(2);
            for (i, (a, b)) in strides.iter().copied().enumerate() {
                let out = if i % 3 == 0 { Gaps } else { Plain };
                let (alpha, beta) = [(1.0, 0.0), (0.5, 1.0), (1.0, -0.5), (2.0, 0.0)][(i + i / 4) % 4];
                let bias = i % 2 == 0;
                check(&mut bench, dtype, &Case { batch, m, n, k, a, b, out, alpha, beta, bias });
            }
        }
    }
}

#[test]
fn nothing_to_sum_gives_what_is_added() {
    let mut bench = Bench::new(2);
    for dtype in TYPES {
        for (beta, bias) in [(0.0, false), (0.0, true), (2.0, false), (1.0, true)] {
            for (m, n, k) in [(3, 4, 0), (0, 4, 3), (3, 0, 3)] {
                let c = Case { batch: 2, m, n, k, a: As::Plain, b: As::Plain, out: As::Plain, alpha: 1.0, beta, bias };
                check(&mut bench, dtype, &c);
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for dtype in TYPES {
        for (m, n, k) in [(300, 600, 200), (4, 2000, 300), (40, 10, 5000)] {
            let results = [1, 2, 5].map(|threads| {
                let mut bench = Bench::new(threads);
                let a = bench.random(dtype, &[1, m, k], 1);
                let b = bench.random(dtype, &[1, n, k], 2);
                let b = memcore::backend::Operand { layout: b.layout.transposed(1, 2), ..b };
                let out = bench.garbage(dtype, Layout::contiguous(&[1, m, n]).unwrap());
                bench.launch(Matmul { alpha: 1.0, beta: 0.0, a, b, bias: None, out, workspace: None });
                bench.read(&out)
            });
            assert!(results[0] == results[1] && results[0] == results[2], "{dtype} {m}×{n}×{k}");
        }
    }
}
