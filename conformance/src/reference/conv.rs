//! Two-dimensional convolution and its gradients, from the definition.

use memcore::Result;
use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad};

use super::Memory;

/// Calls `f` with the positions in input, weight and output of every product in the convolution's sums.
/// `x` is `[n, c, h, w]`, `w` `[o, c/groups, kh, kw]`, `y` `[n, o, oh, ow]`.
fn each_product(g: &Conv2dGeometry, x: &[usize], w: &[usize], y: &[usize], mut f: impl FnMut(usize, usize, usize)) {
    let (channels, outputs) = (w[1], w[0] / g.groups);
    for n in 0..y[0] {
        for o in 0..y[1] {
            for i in 0..y[2] {
                for j in 0..y[3] {
                    let at_y = ((n * y[1] + o) * y[2] + i) * y[3] + j;
                    for (c, ki) in (0..channels).flat_map(|c| (0..w[2]).map(move |ki| (c, ki))) {
                        // Above the picture it wraps round, and is not a row either; so do columns.
                        let row = (i * g.stride[0] + ki * g.dilation[0]).wrapping_sub(g.padding[0]);
                        if row >= x[2] {
                            continue;
                        }
                        let line_x = ((n * x[1] + o / outputs * channels + c) * x[2] + row) * x[3];
                        let line_w = ((o * channels + c) * w[2] + ki) * w[3];
                        for kj in 0..w[3] {
                            let column = (j * g.stride[1] + kj * g.dilation[1]).wrapping_sub(g.padding[1]);
                            if column < x[3] {
                                f(line_x + column, line_w + kj, at_y);
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn conv2d(m: &mut Memory, k: &Conv2d) -> Result<()> {
    let (x, w, bias) = (m.floats(&k.x)?, m.floats(&k.weight)?, m.optional(&k.bias)?);
    let y = k.out.dims();
    let plane = y[2] * y[3];
    let mut out: Vec<f64> =
        (0..k.out.numel()).map(|at| bias.as_ref().map_or(0.0, |bias| bias[at / plane % y[1]])).collect();
    each_product(&k.geometry, k.x.dims(), k.weight.dims(), y, |ix, iw, iy| out[iy] += x[ix] * w[iw]);
    m.write(&k.out, &out)
}

pub(super) fn conv2d_input_grad(m: &mut Memory, k: &Conv2dInputGrad) -> Result<()> {
    let (grad, w) = (m.floats(&k.grad)?, m.floats(&k.weight)?);
    let mut out = vec![0.0; k.out.numel()];
    let add = |ix: usize, iw: usize, iy: usize| out[ix] += grad[iy] * w[iw];
    each_product(&k.geometry, k.out.dims(), k.weight.dims(), k.grad.dims(), add);
    m.write(&k.out, &out)
}

pub(super) fn conv2d_weight_grad(m: &mut Memory, k: &Conv2dWeightGrad) -> Result<()> {
    let (x, grad) = (m.floats(&k.x)?, m.floats(&k.grad)?);
    let mut out = vec![0.0; k.out.numel()];
    let add = |ix: usize, iw: usize, iy: usize| out[iw] += grad[iy] * x[ix];
    each_product(&k.geometry, k.x.dims(), k.out.dims(), k.grad.dims(), add);
    m.write(&k.out, &out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    /// A 1 in the middle of a 3×3 image: the result is the window rotated by 180°, because it is a cross-correlation.
    #[test]
    fn a_delta_shows_the_window_turned() {
        let b = Bench::new();
        let mut delta = [0.0; 9];
        delta[4] = 1.0;
        let window: Vec<f64> = (1..=9).map(f64::from).collect();
        let (x, weight) = (b.f32(&[1, 1, 3, 3], &delta), b.f32(&[1, 1, 3, 3], &window));
        let out = b.fresh(DType::F32, &[1, 1, 3, 3]);
        let geometry = Conv2dGeometry { padding: [1, 1], ..Default::default() };
        b.run(Conv2d { geometry, x, weight, bias: None, out, workspace: None });
        b.expect(&out, &[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        // The gradient of the input, from a delta, is the window itself.
        b.run(Conv2dInputGrad { geometry, grad: x, weight, out, workspace: None });
        b.expect(&out, &window);
        // The gradient of the weight, for a delta input, is the gradient rotated.
        b.run(Conv2dWeightGrad { geometry, x, grad: weight, out, workspace: None });
        b.expect(&out, &[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    }

    #[test]
    fn stride_dilation_groups_and_bias_by_hand() {
        let b = Bench::new();
        // Two channels in two groups, 1×5 images, window 1×2 with dilation 2, stride 2: out[j] = w0·x[2j] +
        // w1·x[2j+2] + bias.
        let x = b.f32(&[1, 2, 1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let weight = b.f32(&[2, 1, 1, 2], &[1.0, 1.0, 1.0, -1.0]);
        let bias = b.f32(&[2], &[0.5, 1.0]);
        let geometry = Conv2dGeometry { stride: [1, 2], dilation: [1, 2], groups: 2, ..Default::default() };
        let out = b.fresh(DType::F32, &[1, 2, 1, 2]);
        b.run(Conv2d { geometry, x, weight, bias: Some(bias), out, workspace: None });
        b.expect(&out, &[4.5, 8.5, -19.0, -19.0]);
        let grad = b.f32(&[1, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
        let dx = b.fresh(DType::F32, &[1, 2, 1, 5]);
        b.run(Conv2dInputGrad { geometry, grad, weight, out: dx, workspace: None });
        b.expect(&dx, &[1.0, 0.0, 3.0, 0.0, 2.0, 3.0, 0.0, 1.0, 0.0, -4.0]);
        let dw = b.fresh(DType::F32, &[2, 1, 1, 2]);
        b.run(Conv2dWeightGrad { geometry, x, grad, out: dw, workspace: None });
        b.expect(&dw, &[7.0, 13.0, 150.0, 290.0]);
    }
}
