//! Sums and means with a type, log-sum-exp, variances, norms.

use super::inputs::{LONG, X, rows_of};
use crate::common::labelled::{Row, against_recordings, against_sizes, in_every_form, leaf, leaf_of, row};
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;
const HALVES: [(&str, DType); 2] = [("f16", DType::F16), ("bf16", DType::BF16)];

type As = fn(&Tensor, DType) -> Result<Tensor>;

/// Sums and means with `dtype=`.
fn in_a_type(rows: &mut Vec<Row>) {
    let forms: [(&str, As); 6] = [
        ("sum", |x, t| ops::sum_as(x, &[], false, t)),
        ("sum_dim", |x, t| ops::sum_as(x, &[0], false, t)),
        ("sum_dims_kept", |x, t| ops::sum_as(x, &[0, 1], true, t)),
        ("mean", |x, t| ops::mean_as(x, &[], false, t)),
        ("mean_dim", |x, t| ops::mean_as(x, &[1], false, t)),
        ("sum_big", |x, t| ops::sum_as(x, &[], false, t)),
    ];
    let narrow: [(&str, As); 2] =
        [("sum_f32", |x, t| ops::sum_as(x, &[], false, t)), ("mean_f32", |x, t| ops::mean_as(x, &[1], false, t))];
    for (n, dtype) in HALVES {
        for (name, f) in forms {
            let dims: &[usize] = if name == "sum_big" { &[4096, 1024] } else { &[64, 256] };
            rows.push(row(format!("{name}_dtype_{n}"), dtype, leaf_of(dims), move |t| f(&t[0], F32)));
        }
        for (name, f) in narrow {
            let inputs = |d: &Device, _| vec![leaf(d, &[64, 256], F32)];
            rows.push(row(format!("{name}_dtype_{n}"), dtype, inputs, move |t| f(&t[0], dtype)));
        }
        rows.push(row(format!("sum_dtype_autocast_{n}"), dtype, leaf_of(&[64, 256]), |t| {
            ops::sum_as(&t[0], &[], false, F32)
        }));
    }
}

/// The logarithm of a sum of exponentials.
fn logsumexps(rows: &mut Vec<Row>) {
    in_every_form(rows, "logsumexp", |x| ops::logsumexp(x, &[1], false));
    rows.extend([
        row("logsumexp_kept", F32, leaf_of(&[64, 256]), |t| ops::logsumexp(&t[0], &[1], true)),
        row("logsumexp_0", F32, leaf_of(&[64, 256]), |t| ops::logsumexp(&t[0], &[0], false)),
        row("logsumexp_all", F32, leaf_of(&[64, 256]), |t| ops::logsumexp(&t[0], &[0, 1], false)),
    ]);
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    logsumexps(&mut rows);
    in_a_type(&mut rows);
    rows
}

against_recordings! {
    "../../golden/events/reduce.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

fn of_sizes() -> Vec<Row> {
    rows_of(&[
        ("var", X, |t| ops::var(&t[0], &[1], 1.0, false)),
        ("var_all", X, |t| ops::var(&t[0], &[], 1.0, false)),
        ("var_kept", X, |t| ops::var(&t[0], &[0], 0.0, true)),
        ("var_big", LONG, |t| ops::var(&t[0], &[1], 1.0, false)),
        ("std", X, |t| ops::std(&t[0], &[1], 1.0, false)),
        ("std_all", X, |t| ops::std(&t[0], &[], 1.0, false)),
        ("var_mean", X, |t| {
            let [var, mean] = ops::var_mean(&t[0], &[1], 1.0, false)?;
            ops::mul(&var, &mean)
        }),
        ("var_mean_first", X, |t| {
            let [var, _mean] = ops::var_mean(&t[0], &[1], 1.0, false)?;
            Ok(var)
        }),
        ("var_mean_second", X, |t| {
            let [_var, mean] = ops::var_mean(&t[0], &[1], 1.0, false)?;
            Ok(mean)
        }),
        ("std_mean", X, |t| {
            let [std, mean] = ops::std_mean(&t[0], &[0], 1.0, true)?;
            ops::mul(&std, &mean)
        }),
        ("norm_sum", X, |t| ops::norm_sum(&t[0], &[1], false)),
        ("norm_sum_all", X, |t| ops::norm_sum(&t[0], &[], false)),
        ("norm_sum_big", LONG, |t| ops::norm_sum(&t[0], &[1], false)),
    ])
}

against_sizes! { "../../golden/events/sizes/reduce.json", of_sizes() }
