//! Batched matrix product.

use memcore::Result;
use memcore::backend::kernel::Matmul;

use super::Memory;

pub(super) fn matmul(m: &mut Memory, k: &Matmul) -> Result<()> {
    let (batch, rows, columns, inner) = k.sizes();
    let (a, b, bias) = (m.floats(&k.a)?, m.floats(&k.b)?, m.optional(&k.bias)?);
    // With beta 0, `out` is not read: it may hold NaN.
    let mut out = if k.beta == 0.0 { vec![0.0; batch * rows * columns] } else { m.floats(&k.out)? };
    // A row of sums at once, each over the inner size in order: the compiler makes vectors of it.
    let mut sums = vec![0.0; columns];
    for n in 0..batch {
        for i in 0..rows {
            // The sum of nothing.
            sums.fill(-0.0);
            for l in 0..inner {
                let factor = a[(n * rows + i) * inner + l];
                let line = &b[(n * inner + l) * columns..][..columns];
                sums.iter_mut().zip(line).for_each(|(sum, b)| *sum += factor * b);
            }
            for (j, product) in sums.iter().enumerate() {
                let at = (n * rows + i) * columns + j;
                out[at] = k.alpha * product + k.beta * out[at] + bias.as_ref().map_or(0.0, |bias| bias[j]);
            }
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
    fn product_by_hand() {
        let b = Bench::new();
        let x = b.f32(&[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let y = b.f32(&[1, 3, 2], &[1.0, 0.0, 0.0, 1.0, 2.0, -1.0]);
        let out = b.fresh(DType::F32, &[1, 2, 2]);
        b.run(Matmul { alpha: 1.0, beta: 0.0, a: x, b: y, bias: None, out, workspace: None });
        b.expect(&out, &[7.0, -1.0, 16.0, -1.0]);
        let bias = b.f32(&[2], &[10.0, 20.0]);
        b.run(Matmul { alpha: 2.0, beta: -1.0, a: x, b: y, bias: Some(bias), out, workspace: None });
        b.expect(&out, &[17.0, 19.0, 26.0, 19.0]);
    }

    #[test]
    fn transposes_are_strides_and_batches_repeat() {
        let b = Bench::new();
        let mut x = b.f32(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        x.layout = x.layout.transposed(1, 2).broadcast_to(&[2, 2, 2]).unwrap();
        let y = b.f32(&[2, 2, 1], &[1.0, 0.0, 0.0, 1.0]);
        let out = b.fresh(DType::F32, &[2, 2, 1]);
        b.run(Matmul { alpha: 1.0, beta: 0.0, a: x, b: y, bias: None, out, workspace: None });
        b.expect(&out, &[1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn an_empty_inner_size_gives_zero() {
        let b = Bench::new();
        let (x, y) = (b.f32(&[1, 2, 0], &[]), b.f32(&[1, 0, 1], &[]));
        let out = b.fresh(DType::F32, &[1, 2, 1]);
        b.run(Matmul { alpha: 1.0, beta: 0.0, a: x, b: y, bias: None, out, workspace: None });
        b.expect(&out, &[0.0, 0.0]);
    }
}
