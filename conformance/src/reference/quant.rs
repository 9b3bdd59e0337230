//! int8 with one scale per row.

use memcore::Result;
use memcore::backend::kernel::{DequantizeInt8, MatmulInt8, QuantizeInt8};

use super::Memory;

pub(super) fn quantize_int8(m: &mut Memory, k: &QuantizeInt8) -> Result<()> {
    let x = m.floats(&k.x)?;
    let n = k.x.dims()[1];
    let (mut out, mut scales) = (Vec::with_capacity(x.len()), Vec::new());
    for r in 0..k.x.dims()[0] {
        let row = &x[r * n..(r + 1) * n];
        let max = row.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
        // The division uses the scale as stored, rounded to f32.
        let scale = if max == 0.0 { 1.0 } else { f64::from((max / 127.0) as f32) };
        out.extend(row.iter().map(|x| (x / scale).round_ties_even().clamp(-127.0, 127.0)));
        scales.push(scale);
    }
    m.write(&k.out, &out)?;
    m.write(&k.scale, &scales)
}

pub(super) fn dequantize_int8(m: &mut Memory, k: &DequantizeInt8) -> Result<()> {
    let (x, scale) = (m.floats(&k.x)?, m.floats(&k.scale)?);
    let n = k.x.dims()[1];
    let out: Vec<f64> = x.iter().enumerate().map(|(at, x)| x * scale[at / n]).collect();
    m.write(&k.out, &out)
}

pub(super) fn matmul_int8(m: &mut Memory, k: &MatmulInt8) -> Result<()> {
    let (x, weight, scale) = (m.floats(&k.x)?, m.floats(&k.weight)?, m.floats(&k.scale)?);
    let bias = m.optional(&k.bias)?;
    let (inner, n) = (k.x.dims()[1], k.weight.dims()[0]);
    let mut out = Vec::with_capacity(k.out.numel());
    for (i, j) in (0..k.x.dims()[0]).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let product: f64 = (0..inner).map(|l| x[i * inner + l] * weight[j * inner + l] * scale[j]).sum();
        out.push(product + bias.as_ref().map_or(0.0, |bias| bias[j]));
    }
    m.write(&k.out, &out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    #[test]
    fn rows_have_their_scales() {
        let b = Bench::new();
        let x = b.f32(&[2, 3], &[-127.0, 64.4, 2.5, 0.0, 0.0, 0.0]);
        let (out, scale) = (b.fresh(DType::I8, &[2, 3]), b.fresh(DType::F32, &[2]));
        b.run(QuantizeInt8 { x, out, scale });
        // 2.5 is a tie and goes to the even 2; a row of zeros has the scale 1.
        b.expect(&out, &[-127.0, 64.0, 2.0, 0.0, 0.0, 0.0]);
        b.expect(&scale, &[1.0, 1.0]);
        let (scale, back) = (b.f32(&[2], &[0.5, 2.0]), b.fresh(DType::F32, &[2, 3]));
        b.run(DequantizeInt8 { x: out, scale, out: back });
        b.expect(&back, &[-63.5, 32.0, 1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn product_by_hand() {
        let b = Bench::new();
        let x = b.f32(&[1, 2], &[2.0, 3.0]);
        let weight = b.put(DType::I8, &[2, 2], &[1.0, 2.0, -3.0, 4.0]);
        let (scale, bias) = (b.f32(&[2], &[0.5, 2.0]), b.f32(&[2], &[1.0, -1.0]));
        let out = b.fresh(DType::F32, &[1, 2]);
        b.run(MatmulInt8 { x, weight, scale, bias: Some(bias), out });
        b.expect(&out, &[5.0, 11.0]);
    }
}
