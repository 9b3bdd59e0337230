//! Batch norm in many forms.

use memcore::{DType, Device, Result, Tensor, ops};

use super::labelled::{Row, data, leaf, row_with, turned_back};
use super::operators::batch_norm;

const F32: DType = DType::F32;

pub(crate) type One = fn(&Tensor) -> Result<Tensor>;

/// Weight, bias, running mean and variance.
fn channels(d: &Device, count: usize) -> Vec<Tensor> {
    vec![leaf(d, &[count], F32), leaf(d, &[count], F32), data(d, &[count], F32), data(d, &[count], F32)]
}

/// Batch norm of matrices and images in several memory formats, for input and output.
pub(crate) fn rows() -> Vec<Row> {
    const PLANES: &[usize] = &[8, 16, 20, 20];
    let plain: One = |x| Ok(x.clone());
    let turn: One = |x| ops::transpose(x, 0, 1);
    let channels_first: One = |x| ops::permute(x, &[0, 3, 1, 2]);
    let channels_last: One = |x| ops::contiguous(&ops::permute(x, &[0, 2, 3, 1])?);
    let turn_back: One = |x| ops::contiguous(&ops::transpose(x, 0, 1)?);
    let forms: [(&str, &[usize], One, One); 14] = [
        ("_turned", &[16, 8, 20, 20], turn, plain),
        ("_nhwc", &[8, 20, 20, 16], channels_first, plain),
        ("_turned_grad", PLANES, plain, turn_back),
        ("_nhwc_grad", PLANES, plain, channels_last),
        ("_nhwc_both", &[8, 20, 20, 16], channels_first, channels_last),
        ("_turned_both", &[16, 8, 20, 20], turn, turn_back),
        ("_2d", &[64, 256], plain, plain),
        ("_2d_turned", &[256, 64], ops::t, plain),
        ("_2d_turned_grad", &[64, 256], plain, turned_back),
        ("_2d_turned_both", &[256, 64], ops::t, turned_back),
        ("_3d", &[4, 256, 24], plain, plain),
        ("_3d_turned", &[4, 24, 256], |x| ops::transpose(x, 1, 2), plain),
        ("_2d_summed", &[64, 256], plain, ops::sum),
        ("_summed", PLANES, plain, ops::sum),
    ];
    let mut rows = Vec::new();
    let mut add = |name: String, dtype, dims, wants: bool, affine: bool, before: One, after: One| {
        rows.push(row(name, dtype, dims, [wants, affine], [before, after]));
    };
    for mode in ["", "_eval"] {
        for &(form, dims, before, after) in &forms {
            add(format!("batch_norm{mode}{form}"), F32, dims, true, true, before, after);
        }
        let nhwc: &[usize] = &[8, 20, 20, 16];
        for (form, dims, before) in [("", PLANES, plain), ("_2d", &[64, 256], plain), ("_nhwc", nhwc, channels_first)] {
            add(format!("batch_norm{mode}{form}_plain"), F32, dims, true, false, before, plain);
            add(format!("batch_norm{mode}{form}_data"), F32, dims, false, true, before, plain);
        }
        add(format!("batch_norm{mode}_2d_f16"), DType::F16, &[64, 256], true, true, plain, plain);
        add(format!("batch_norm{mode}_nhwc_f16"), DType::F16, nhwc, true, true, channels_first, plain);
        add(format!("batch_norm{mode}_data_f16"), DType::F16, PLANES, false, true, plain, plain);
        add(format!("batch_norm{mode}_2d_no_grad"), F32, &[64, 256], true, true, plain, plain);
    }
    rows
}

/// In evaluation, or without a tape, where the name says so; the input `wants` a gradient, or there are no parameters but statistics.
pub(crate) fn row(
    name: String,
    dtype: DType,
    dims: &'static [usize],
    [wants, affine]: [bool; 2],
    [before, after]: [One; 2],
) -> Row {
    let count = if name.contains("_2d") || name.contains("_3d") { 256 } else { 16 };
    let training = !name.contains("eval");
    row_with(
        name,
        dtype,
        move |d, _| channels(d, count),
        move |d, t| vec![if wants { leaf(d, dims, t) } else { data(d, dims, t) }],
        move |p, t| after(&batch_norm(p, &before(&t[0])?, training, affine)?),
    )
}
