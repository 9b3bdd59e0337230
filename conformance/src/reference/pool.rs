//! Max and average pooling.

use memcore::Result;
use memcore::backend::kernel::{Pool2d, Pool2dGeometry, Pool2dGrad, PoolOp};

use super::Memory;

/// The positions `y·w + x` inside the plane that window `(i, j)` covers, without those in the padding.
fn window(g: &Pool2dGeometry, plane: [usize; 2], i: usize, j: usize) -> Vec<usize> {
    let mut covered = Vec::new();
    for (ki, kj) in (0..g.window[0]).flat_map(|ki| (0..g.window[1]).map(move |kj| (ki, kj))) {
        let row = (i * g.stride[0] + ki).checked_sub(g.padding[0]);
        let column = (j * g.stride[1] + kj).checked_sub(g.padding[1]);
        if let (Some(row), Some(column)) = (row, column)
            && row < plane[0]
            && column < plane[1]
        {
            covered.push(row * plane[1] + column);
        }
    }
    covered
}

/// Calls `f` with the position in the output, the start of the plane in the input, and the window, for every window.
fn each_window(g: &Pool2dGeometry, x: &[usize], y: &[usize], mut f: impl FnMut(usize, usize, &[usize])) {
    for plane in 0..y[0] * y[1] {
        for (i, j) in (0..y[2]).flat_map(|i| (0..y[3]).map(move |j| (i, j))) {
            f((plane * y[2] + i) * y[3] + j, plane * x[2] * x[3], &window(g, [x[2], x[3]], i, j));
        }
    }
}

pub(super) fn pool2d(m: &mut Memory, k: &Pool2d) -> Result<()> {
    let x = m.floats(&k.x)?;
    let (mut out, mut indices) = (vec![0.0; k.out.numel()], vec![0; k.out.numel()]);
    let size = (k.geometry.window[0] * k.geometry.window[1]) as f64;
    each_window(&k.geometry, k.x.dims(), k.out.dims(), |at, plane, window| match k.op {
        PoolOp::Average => out[at] = window.iter().map(|p| x[plane + p]).sum::<f64>() / size,
        PoolOp::Max => {
            let mut best = window[0];
            for &p in window {
                let (new, old) = (x[plane + p], x[plane + best]);
                if !old.is_nan() && (new.is_nan() || new > old) {
                    best = p;
                }
            }
            out[at] = x[plane + best];
            indices[at] = best as i64;
        }
    });
    m.write(&k.out, &out)?;
    k.indices.as_ref().map_or(Ok(()), |i| m.write_ints(i, &indices))
}

pub(super) fn pool2d_grad(m: &mut Memory, k: &Pool2dGrad) -> Result<()> {
    let grad = m.floats(&k.grad)?;
    let indices = k.indices.as_ref().map(|i| m.ints(i)).transpose()?;
    let mut out = vec![0.0; k.out.numel()];
    let size = (k.geometry.window[0] * k.geometry.window[1]) as f64;
    each_window(&k.geometry, k.out.dims(), k.grad.dims(), |at, plane, window| match &indices {
        Some(indices) => out[plane + indices[at] as usize] += grad[at],
        None => window.iter().for_each(|p| out[plane + p] += grad[at] / size),
    });
    m.write(&k.out, &out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    #[test]
    fn max_and_its_gradient_by_hand() {
        let b = Bench::new();
        let x = b.f32(&[1, 1, 3, 3], &[1.0, 5.0, 5.0, 2.0, 4.0, 3.0, 9.0, 8.0, 7.0]);
        let geometry = Pool2dGeometry { window: [2, 2], stride: [1, 1], padding: [0, 0] };
        let (out, indices) = (b.fresh(DType::F32, &[1, 1, 2, 2]), b.fresh(DType::I64, &[1, 1, 2, 2]));
        b.run(Pool2d { op: PoolOp::Max, geometry, x, out, indices: Some(indices) });
        b.expect(&out, &[5.0, 5.0, 9.0, 8.0]);
        b.expect(&indices, &[1.0, 1.0, 6.0, 7.0]);
        let grad = b.f32(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let dx = b.fresh(DType::F32, &[1, 1, 3, 3]);
        b.run(Pool2dGrad { op: PoolOp::Max, geometry, grad, indices: Some(indices), out: dx });
        b.expect(&dx, &[0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0]);
    }

    #[test]
    fn padding_counts_for_averages_and_not_for_maxima() {
        let b = Bench::new();
        let x = b.f32(&[1, 1, 1, 2], &[-4.0, -8.0]);
        let geometry = Pool2dGeometry { window: [1, 2], stride: [1, 2], padding: [0, 1] };
        let out = b.fresh(DType::F32, &[1, 1, 1, 2]);
        b.run(Pool2d { op: PoolOp::Average, geometry, x, out, indices: None });
        b.expect(&out, &[-2.0, -4.0]);
        let indices = b.fresh(DType::I64, &[1, 1, 1, 2]);
        b.run(Pool2d { op: PoolOp::Max, geometry, x, out, indices: Some(indices) });
        b.expect(&out, &[-4.0, -8.0]);
        b.expect(&indices, &[0.0, 1.0]);
        let dx = b.fresh(DType::F32, &[1, 1, 1, 2]);
        b.run(Pool2dGrad { op: PoolOp::Average, geometry, grad: out, indices: None, out: dx });
        b.expect(&dx, &[-2.0, -4.0]);
    }
}
