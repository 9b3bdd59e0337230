//! Rows of a table by index, and back.

use memcore::Result;
use memcore::backend::kernel::{Gather, ScatterAdd};

use super::{Memory, Number};

pub(super) fn gather(m: &mut Memory, k: &Gather) -> Result<()> {
    let (table, indices) = (m.numbers(&k.table)?, m.ints(&k.indices)?);
    let (rows, n) = (k.table.dims()[0] as i64, k.table.dims()[1]);
    let missing = if k.out.dtype.is_float() { Number::F(f64::NAN) } else { Number::I(0) };
    let mut out = Vec::with_capacity(indices.len() * n);
    for &r in &indices {
        let inside = (0..rows).contains(&r);
        out.extend((0..n).map(|j| if inside { table[r as usize * n + j] } else { missing }));
    }
    m.write_numbers(&k.out, out)
}

pub(super) fn scatter_add(m: &mut Memory, k: &ScatterAdd) -> Result<()> {
    let (src, indices) = (m.floats(&k.src)?, m.ints(&k.indices)?);
    let (rows, n) = (k.out.dims()[0] as i64, k.out.dims()[1]);
    let mut out = if k.accumulate { m.floats(&k.out)? } else { vec![0.0; k.out.numel()] };
    for (i, &r) in indices.iter().enumerate() {
        if (0..rows).contains(&r) && k.padding_index != Some(r) {
            for j in 0..n {
                out[r as usize * n + j] += src[i * n + j];
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
    fn gather_reads_rows_and_nan_outside() {
        let b = Bench::new();
        let table = b.f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let indices = b.put(DType::I64, &[4], &[1.0, 0.0, 2.0, -1.0]);
        let out = b.fresh(DType::F32, &[4, 2]);
        b.run(Gather { table, indices, out });
        let nan = f64::NAN;
        b.expect(&out, &[3.0, 4.0, 1.0, 2.0, nan, nan, nan, nan]);
        let (table, out) = (b.put(DType::U8, &[2, 1], &[7.0, 8.0]), b.fresh(DType::U8, &[4, 1]));
        b.run(Gather { table, indices, out });
        b.expect(&out, &[8.0, 7.0, 0.0, 0.0]);
    }

    #[test]
    fn scatter_adds_and_skips_padding() {
        let b = Bench::new();
        let src = b.f32(&[4, 1], &[1.0, 2.0, 4.0, 8.0]);
        let indices = b.put(DType::I64, &[4], &[0.0, 2.0, 0.0, 5.0]);
        let out = b.fresh(DType::F32, &[3, 1]);
        b.run(ScatterAdd { accumulate: false, padding_index: None, src, indices, out });
        b.expect(&out, &[5.0, 0.0, 2.0]);
        b.run(ScatterAdd { accumulate: true, padding_index: Some(2), src, indices, out });
        b.expect(&out, &[10.0, 0.0, 2.0]);
    }
}
