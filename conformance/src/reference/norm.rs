//! Layer, root-mean-square and batch normalisation, and their gradients.

use memcore::Result;
use memcore::backend::kernel::{BatchNorm, BatchNormGrad, LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad};

use super::Memory;

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// Mean and biased variance.
fn moments(values: &[f64]) -> (f64, f64) {
    let mu = mean(values.iter().copied());
    (mu, mean(values.iter().map(|x| (x - mu) * (x - mu))))
}

/// Element `j` of an affine parameter; `default` if it is absent.
fn affine(parameter: &Option<Vec<f64>>, j: usize, default: f64) -> f64 {
    parameter.as_ref().map_or(default, |p| p[j])
}

pub(super) fn layer_norm(m: &mut Memory, k: &LayerNorm) -> Result<()> {
    let (x, weight, bias) = (m.floats(&k.x)?, m.optional(&k.weight)?, m.optional(&k.bias)?);
    let n = k.x.dims()[1].max(1);
    let (mut out, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    for row in x.chunks(n) {
        let (mu, var) = moments(row);
        let rstd = 1.0 / (var + k.eps).sqrt();
        let scaled = |(j, x): (usize, &f64)| (x - mu) * rstd * affine(&weight, j, 1.0) + affine(&bias, j, 0.0);
        out.extend(row.iter().enumerate().map(scaled));
        means.push(mu);
        rstds.push(rstd);
    }
    m.write(&k.out, &out)?;
    m.write(&k.mean, &means)?;
    m.write(&k.rstd, &rstds)
}

pub(super) fn layer_norm_grad(m: &mut Memory, k: &LayerNormGrad) -> Result<()> {
    let (grad, x, weight) = (m.floats(&k.grad)?, m.floats(&k.x)?, m.optional(&k.weight)?);
    let (means, rstds) = (m.floats(&k.mean)?, m.floats(&k.rstd)?);
    let n = k.x.dims()[1];
    let (mut dx, mut dweight, mut dbias) = (Vec::new(), vec![0.0; n], vec![0.0; n]);
    for (r, (grad, x)) in grad.chunks(n.max(1)).zip(x.chunks(n.max(1))).enumerate() {
        let normal: Vec<f64> = x.iter().map(|x| (x - means[r]) * rstds[r]).collect();
        let g: Vec<f64> = grad.iter().enumerate().map(|(j, grad)| grad * affine(&weight, j, 1.0)).collect();
        let (mean_g, mean_gx) = (mean(g.iter().copied()), mean(g.iter().zip(&normal).map(|(g, x)| g * x)));
        for j in 0..n {
            dx.push(rstds[r] * (g[j] - mean_g - normal[j] * mean_gx));
            dweight[j] += grad[j] * normal[j];
            dbias[j] += grad[j];
        }
    }
    m.write_optional(&k.out_x, &dx)?;
    m.write_optional(&k.out_weight, &dweight)?;
    m.write_optional(&k.out_bias, &dbias)
}

pub(super) fn rms_norm(m: &mut Memory, k: &RmsNorm) -> Result<()> {
    let (x, weight) = (m.floats(&k.x)?, m.optional(&k.weight)?);
    let (mut out, mut rstds) = (Vec::new(), Vec::new());
    for row in x.chunks(k.x.dims()[1].max(1)) {
        let rstd = 1.0 / (mean(row.iter().map(|x| x * x)) + k.eps).sqrt();
        out.extend(row.iter().enumerate().map(|(j, x)| x * rstd * affine(&weight, j, 1.0)));
        rstds.push(rstd);
    }
    m.write(&k.out, &out)?;
    m.write(&k.rstd, &rstds)
}

pub(super) fn rms_norm_grad(m: &mut Memory, k: &RmsNormGrad) -> Result<()> {
    let (grad, x, weight) = (m.floats(&k.grad)?, m.floats(&k.x)?, m.optional(&k.weight)?);
    let rstds = m.floats(&k.rstd)?;
    let n = k.x.dims()[1];
    let (mut dx, mut dweight) = (Vec::new(), vec![0.0; n]);
    for (r, (grad, x)) in grad.chunks(n.max(1)).zip(x.chunks(n.max(1))).enumerate() {
        let normal: Vec<f64> = x.iter().map(|x| x * rstds[r]).collect();
        let g: Vec<f64> = grad.iter().enumerate().map(|(j, grad)| grad * affine(&weight, j, 1.0)).collect();
        let mean_gx = mean(g.iter().zip(&normal).map(|(g, x)| g * x));
        for j in 0..n {
            dx.push(rstds[r] * (g[j] - normal[j] * mean_gx));
            dweight[j] += grad[j] * normal[j];
        }
    }
    m.write_optional(&k.out_x, &dx)?;
    m.write_optional(&k.out_weight, &dweight)
}

/// The positions of channel `c` in `[n, channels, l]`.
fn channel(dims: &[usize], c: usize) -> Vec<usize> {
    (0..dims[0]).flat_map(|n| (0..dims[2]).map(move |l| (n * dims[1] + c) * dims[2] + l)).collect()
}

pub(super) fn batch_norm(m: &mut Memory, k: &BatchNorm) -> Result<()> {
    let (x, weight, bias) = (m.floats(&k.x)?, m.optional(&k.weight)?, m.optional(&k.bias)?);
    let (mut running_mean, mut running_var) = (m.optional(&k.running_mean)?, m.optional(&k.running_var)?);
    let (mut out, mut means, mut invstds) = (vec![0.0; x.len()], Vec::new(), Vec::new());
    for c in 0..k.x.dims()[1] {
        let places = channel(k.x.dims(), c);
        let (mu, var) = if k.training {
            let values: Vec<f64> = places.iter().map(|&p| x[p]).collect();
            let (mu, var) = moments(&values);
            let unbiased = var * values.len() as f64 / (values.len() as f64 - 1.0);
            for (running, batch) in [(&mut running_mean, mu), (&mut running_var, unbiased)] {
                if let Some(running) = running {
                    running[c] = (1.0 - k.momentum) * running[c] + k.momentum * batch;
                }
            }
            (mu, var)
        } else {
            (affine(&running_mean, c, f64::NAN), affine(&running_var, c, f64::NAN))
        };
        let invstd = 1.0 / (var + k.eps).sqrt();
        for p in places {
            out[p] = (x[p] - mu) * invstd * affine(&weight, c, 1.0) + affine(&bias, c, 0.0);
        }
        means.push(mu);
        invstds.push(invstd);
    }
    m.write(&k.out, &out)?;
    if !k.training {
        return Ok(());
    }
    for (operand, values) in [(&k.running_mean, running_mean), (&k.running_var, running_var)] {
        if let Some(values) = values {
            m.write_optional(operand, &values)?;
        }
    }
    m.write_optional(&k.save_mean, &means)?;
    m.write_optional(&k.save_invstd, &invstds)
}

pub(super) fn batch_norm_grad(m: &mut Memory, k: &BatchNormGrad) -> Result<()> {
    let (grad, x, weight) = (m.floats(&k.grad)?, m.floats(&k.x)?, m.optional(&k.weight)?);
    let (means, invstds) = (m.floats(&k.mean)?, m.floats(&k.invstd)?);
    let (mut dx, mut dweight, mut dbias) = (vec![0.0; x.len()], Vec::new(), Vec::new());
    for c in 0..k.x.dims()[1] {
        let places = channel(k.x.dims(), c);
        let normal = |p: usize| (x[p] - means[c]) * invstds[c];
        let sum: f64 = places.iter().map(|&p| grad[p]).sum();
        let sum_normal: f64 = places.iter().map(|&p| grad[p] * normal(p)).sum();
        let (mean_grad, mean_normal) = (sum / places.len() as f64, sum_normal / places.len() as f64);
        for &p in &places {
            let centred = if k.training { grad[p] - mean_grad - normal(p) * mean_normal } else { grad[p] };
            dx[p] = affine(&weight, c, 1.0) * invstds[c] * centred;
        }
        dweight.push(sum_normal);
        dbias.push(sum);
    }
    m.write_optional(&k.out_x, &dx)?;
    m.write_optional(&k.out_weight, &dweight)?;
    m.write_optional(&k.out_bias, &dbias)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    #[test]
    fn layer_norm_by_hand() {
        let b = Bench::new();
        // Mean 2, variance 1: the row becomes −1, 1, then weight and bias.
        let x = b.f32(&[1, 2], &[1.0, 3.0]);
        let (weight, bias) = (b.f32(&[2], &[2.0, 3.0]), b.f32(&[2], &[0.5, 0.25]));
        let out = b.fresh(DType::F32, &[1, 2]);
        let (mean, rstd) = (b.fresh(DType::F32, &[1]), b.fresh(DType::F32, &[1]));
        b.run(LayerNorm { eps: 0.0, x, weight: Some(weight), bias: Some(bias), out, mean, rstd });
        b.expect(&out, &[-1.5, 3.25]);
        b.expect(&mean, &[2.0]);
        b.expect(&rstd, &[1.0]);
        b.run(LayerNorm { eps: 3.0, x, weight: None, bias: None, out, mean, rstd });
        b.expect(&out, &[-0.5, 0.5]);
    }

    #[test]
    fn rms_norm_by_hand() {
        let b = Bench::new();
        let (x, weight) = (b.f32(&[1, 2], &[1.0, 7.0]), b.f32(&[2], &[5.0, 10.0]));
        let (out, rstd) = (b.fresh(DType::F32, &[1, 2]), b.fresh(DType::F32, &[1]));
        b.run(RmsNorm { eps: 0.0, x, weight: Some(weight), out, rstd });
        b.expect(&out, &[1.0, 14.0]);
        b.expect(&rstd, &[0.2]);
    }

    #[test]
    fn batch_norm_by_hand() {
        let b = Bench::new();
        // Channel 0 holds 1, 3 (mean 2, variance 1, unbiased 2); channel 1 holds 0, 4 (mean 2, variance 4, unbiased 8).
        let x = b.f32(&[2, 2, 1], &[1.0, 0.0, 3.0, 4.0]);
        let (running_mean, running_var) = (b.f32(&[2], &[0.0, 10.0]), b.f32(&[2], &[1.0, 1.0]));
        let (save_mean, save_invstd) = (b.fresh(DType::F32, &[2]), b.fresh(DType::F32, &[2]));
        let out = b.fresh(DType::F32, &[2, 2, 1]);
        let mut call = BatchNorm {
            training: true,
            momentum: 0.5,
            eps: 0.0,
            x,
            weight: None,
            bias: None,
            running_mean: Some(running_mean),
            running_var: Some(running_var),
            out,
            save_mean: Some(save_mean),
            save_invstd: Some(save_invstd),
        };
        b.run(call.clone());
        b.expect(&out, &[-1.0, -1.0, 1.0, 1.0]);
        b.expect(&save_mean, &[2.0, 2.0]);
        b.expect(&save_invstd, &[1.0, 0.5]);
        b.expect(&running_mean, &[1.0, 6.0]);
        b.expect(&running_var, &[1.5, 4.5]);
        call.training = false;
        call.eps = 2.5;
        (call.save_mean, call.save_invstd) = (None, None);
        b.run(call);
        b.expect(&out, &[0.0, -6.0 / 7f64.sqrt(), 1.0, -2.0 / 7f64.sqrt()]);
        b.expect(&running_mean, &[1.0, 6.0]);
    }

    /// Central differences of a loss `Σ grad·out` in f64 against the gradient kernels.
    #[test]
    fn gradients_are_central_differences() {
        let x = [0.3, -1.2, 2.0, 0.7, 0.1, -0.4, 1.5, -0.9, 0.2, 0.6, -2.0, 1.1];
        let grad = [0.5, -0.2, 1.0, 0.3, -0.7, 0.9, -1.1, 0.4, 0.8, -0.6, 0.2, 0.1];
        let w = [1.5, 0.5, -2.0, 0.8];
        for norm in ["layer", "rms", "batch"] {
            let eval = |x: &[f64], w: &[f64]| {
                let (out, _, _) = forward(norm, x, w);
                out.iter().zip(grad).map(|(o, g)| o * g).sum::<f64>()
            };
            let (_, mean, rstd) = forward(norm, &x, &w);
            let (dx, dw) = backward(norm, &x, &w, &grad, &mean, &rstd);
            let slope = |values: &[f64], i: usize, f: &dyn Fn(&[f64]) -> f64| {
                let (mut up, mut down) = (values.to_vec(), values.to_vec());
                up[i] += 1e-6;
                down[i] -= 1e-6;
                (f(&up) - f(&down)) / 2e-6
            };
            for (i, dx) in dx.iter().enumerate() {
                let want = slope(&x, i, &|x| eval(x, &w));
                assert!((dx - want).abs() < 1e-7, "{norm} x[{i}]: {dx} against {want}");
            }
            for (i, dw) in dw.iter().enumerate() {
                let want = slope(&w, i, &|w| eval(&x, w));
                assert!((dw - want).abs() < 1e-7, "{norm} weight[{i}]: {dw} against {want}");
            }
        }
    }

    /// Result, mean and rstd of a norm over 12 values: 3 rows of 4, or `[1, 4, 3]`.
    fn forward(norm: &str, x: &[f64], w: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let b = Bench::new();
        let stat = if norm == "batch" { 4 } else { 3 };
        let (mean, rstd) = (b.f64(&[stat], &vec![0.0; stat]), b.f64(&[stat], &vec![0.0; stat]));
        let weight = Some(b.f64(&[4], w));
        let eps = 0.1;
        let out = if norm == "batch" {
            let (x, out) = (b.f64(&[1, 4, 3], x), b.fresh(DType::F64, &[1, 4, 3]));
            b.run(BatchNorm {
                training: true,
                momentum: 0.1,
                eps,
                x,
                weight,
                bias: None,
                running_mean: None,
                running_var: None,
                out,
                save_mean: Some(mean),
                save_invstd: Some(rstd),
            });
            out
        } else {
            let (x, out) = (b.f64(&[3, 4], x), b.fresh(DType::F64, &[3, 4]));
            if norm == "layer" {
                b.run(LayerNorm { eps, x, weight, bias: None, out, mean, rstd });
            } else {
                b.run(RmsNorm { eps, x, weight, out, rstd });
            }
            out
        };
        (b.get(&out), b.get(&mean), b.get(&rstd))
    }

    fn backward(norm: &str, x: &[f64], w: &[f64], grad: &[f64], mean: &[f64], rstd: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let b = Bench::new();
        let dims: &[usize] = if norm == "batch" { &[1, 4, 3] } else { &[3, 4] };
        let (x, grad) = (b.f64(dims, x), b.f64(dims, grad));
        let (mean, rstd) = (b.f64(&[mean.len()], mean), b.f64(&[rstd.len()], rstd));
        let weight = Some(b.f64(&[4], w));
        let (dx, dw) = (b.fresh(DType::F64, dims), b.fresh(DType::F64, &[4]));
        let (out_x, out_weight) = (Some(dx), Some(dw));
        match norm {
            "layer" => b.run(LayerNormGrad { grad, x, mean, rstd, weight, out_x, out_weight, out_bias: None }),
            "rms" => b.run(RmsNormGrad { grad, x, rstd, weight, out_x, out_weight }),
            _ => {
                let training = true;
                b.run(BatchNormGrad {
                    training,
                    grad,
                    x,
                    mean,
                    invstd: rstd,
                    weight,
                    out_x,
                    out_weight,
                    out_bias: None,
                });
            }
        }
        (b.get(&dx), b.get(&dw))
    }
}
