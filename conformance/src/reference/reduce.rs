//! Reductions over any set of axes.

use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::{Layout, Result};

use super::{Memory, positions};

pub(super) fn reduce(m: &mut Memory, k: &Reduce) -> Result<()> {
    let x = m.floats(&k.x)?;
    let mut groups: Vec<Vec<f64>> = vec![Vec::new(); k.out.numel()];
    // A layout that maps each element of `x` to its group: `out`'s row-major strides, 0 in reduced axes.
    let out = Layout::contiguous(k.out.dims())?;
    let strides: Vec<usize> =
        out.strides().iter().enumerate().map(|(axis, &s)| if k.reduces(axis) { 0 } else { s }).collect();
    for (group, &value) in positions(&Layout::strided(k.x.dims(), &strides)?).zip(&x) {
        groups[group].push(value);
    }
    let results: Vec<f64> = groups.iter().map(|group| value(k.op, group)).collect();
    m.write(&k.out, &results)?;
    let Some(indices) = &k.indices else { return Ok(()) };
    let places: Vec<i64> = groups.iter().map(|group| extremum(k.op, group) as i64).collect();
    m.write_ints(indices, &places)
}

fn value(op: ReduceOp, group: &[f64]) -> f64 {
    match op {
        ReduceOp::Sum => group.iter().sum(),
        ReduceOp::Mean => group.iter().sum::<f64>() / group.len() as f64,
        ReduceOp::SumSquares => group.iter().map(|x| x * x).sum(),
        ReduceOp::Max | ReduceOp::Min => group.get(extremum(op, group)).copied().unwrap_or(f64::NAN),
    }
}

/// The position of the first extremum; that of the first NaN if there is one.
fn extremum(op: ReduceOp, group: &[f64]) -> usize {
    let mut best = 0;
    for (i, &x) in group.iter().enumerate() {
        let better = if op == ReduceOp::Min { x < group[best] } else { x > group[best] };
        if !group[best].is_nan() && (x.is_nan() || better) {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    #[test]
    fn groups_run_over_the_marked_axes() {
        let b = Bench::new();
        let x = b.f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let run = |op, axes, dims: &[usize]| {
            let out = b.fresh(DType::F32, dims);
            b.run(Reduce { op, axes, x, out, indices: None });
            b.get(&out)
        };
        assert_eq!(run(ReduceOp::Sum, 0b01, &[1, 3]), [5.0, 7.0, 9.0]);
        assert_eq!(run(ReduceOp::Sum, 0b10, &[2, 1]), [6.0, 15.0]);
        assert_eq!(run(ReduceOp::Sum, 0b11, &[1, 1]), [21.0]);
        assert_eq!(run(ReduceOp::Mean, 0b10, &[2, 1]), [2.0, 5.0]);
        assert_eq!(run(ReduceOp::SumSquares, 0b10, &[2, 1]), [14.0, 77.0]);
        assert_eq!(run(ReduceOp::Min, 0b01, &[1, 3]), [1.0, 2.0, 3.0]);
        assert_eq!(run(ReduceOp::Max, 0b11, &[1, 1]), [6.0]);
    }

    #[test]
    fn extrema_report_the_first_and_nan_wins() {
        let b = Bench::new();
        let x = b.f32(&[3, 4], &[1.0, 7.0, 7.0, 2.0, 3.0, f64::NAN, 9.0, f64::NAN, 5.0, 5.0, 5.0, 5.0]);
        let (out, indices) = (b.fresh(DType::F32, &[3, 1]), b.fresh(DType::I64, &[3, 1]));
        b.run(Reduce { op: ReduceOp::Max, axes: 0b10, x, out, indices: Some(indices) });
        b.expect(&out, &[7.0, f64::NAN, 5.0]);
        b.expect(&indices, &[1.0, 1.0, 0.0]);
    }

    #[test]
    fn a_sum_of_nothing_is_zero() {
        let b = Bench::new();
        let (x, out) = (b.f32(&[2, 0], &[]), b.fresh(DType::F32, &[2, 1]));
        b.run(Reduce { op: ReduceOp::Sum, axes: 0b10, x, out, indices: None });
        b.expect(&out, &[0.0, 0.0]);
    }
}
