//! Compares layer normalisation with plain loops in f64, over rows that are computed in place, written past the caches, rounded from another type, and too
//! long for a scratch.

use backend_cpu::STREAMED_BYTES;
use memcore::backend::kernel::{LayerNorm, LayerNormGrad};
use memcore::{DType, Layout};

use crate::bench::{Bench, noise};

/// Rows of a test, and rounding errors that it allows.
struct Case {
    dtype: DType,
    dims: [usize; 2],
    tolerance: f64,
}

const EPS: f64 = 1e-5;

fn check(Case { dtype, dims: [rows, n], tolerance }: Case) {
    let mut b = Bench::with_room(2, (8 * rows * n * 4 + (1 << 20)) as u64);
    let of_rows = Layout::contiguous(&[rows, n]).unwrap();
    let of_columns = Layout::contiguous(&[n]).unwrap();
    let of_statistics = Layout::contiguous(&[rows]).unwrap();
    let [x, grad] = [1, 2].map(|seed| noise(rows * n, seed));
    let [weight, bias] = [3, 4].map(|seed| noise(n, seed));
    let [x_on, grad_on] = [&x, &grad].map(|values| b.operand(dtype, of_rows, values));
    let [weight_on, bias_on] = [&weight, &bias].map(|values| b.operand(dtype, of_columns, values));
    let [out, out_x] = [of_rows; 2].map(|layout| b.garbage(dtype, layout));
    let [out_weight, out_bias] = [of_columns; 2].map(|layout| b.garbage(dtype, layout));
    let [mean, rstd] = [of_statistics; 2].map(|layout| b.garbage(DType::F32, layout));
    let (weight_on, bias_on) = (Some(weight_on), Some(bias_on));
    b.launch(LayerNorm { x: x_on, weight: weight_on, bias: bias_on, out, mean, rstd, eps: EPS });
    b.launch(LayerNormGrad {
        grad: grad_on,
        x: x_on,
        mean,
        rstd,
        weight: weight_on,
        out_x: Some(out_x),
        out_weight: Some(out_weight),
        out_bias: Some(out_bias),
    });

    let (mut want, mut want_x) = (Vec::new(), Vec::new());
    let (mut want_weight, mut want_bias) = (vec![0.0; n], vec![0.0; n]);
    for (x, grad) in x.chunks(n).zip(grad.chunks(n)) {
        let mean = x.iter().sum::<f64>() / n as f64;
        let rstd = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64 + EPS).sqrt();
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
        want.extend(normal.iter().zip(&weight).zip(&bias).map(|((x, w), b)| x * w + b));
        let weighted: Vec<f64> = grad.iter().zip(&weight).map(|(g, w)| g * w).collect();
        let mean_g = weighted.iter().sum::<f64>() / n as f64;
        let mean_product = weighted.iter().zip(&normal).map(|(g, x)| g * x).sum::<f64>() / n as f64;
        want_x.extend(weighted.iter().zip(&normal).map(|(g, x)| rstd * (g - mean_g - x * mean_product)));
        for (j, (g, x)) in grad.iter().zip(&normal).enumerate() {
            want_weight[j] += g * x;
            want_bias[j] += g;
        }
    }
    let what = |of: &str| format!("{of} of {dtype} {rows}×{n}");
    b.assert_close(&what("result"), &out, &want, tolerance);
    b.assert_close(&what("gradient"), &out_x, &want_x, tolerance);
    b.assert_close(&what("weight's gradient"), &out_weight, &want_weight, tolerance);
    b.assert_close(&what("bias's gradient"), &out_bias, &want_bias, tolerance);
}

#[test]
fn rows_of_every_kind_are_normalised() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for dims in [[7, 5], [33, 1000]] {
            check(Case { dtype, dims, tolerance: 16.0 });
        }
        // Four copies of a row are more than a scratch holds.
        check(Case { dtype, dims: [3, 150_000], tolerance: 16.0 });
    }
}

#[test]
fn rows_that_are_written_past_the_caches_arrive() {
    let dims = [1024, 8192];
    assert!(dims[0] * dims[1] * size_of::<f32>() >= STREAMED_BYTES);
    check(Case { dtype: DType::F32, dims, tolerance: 256.0 });
}
