//! Softmax with a type, group norm, batch norm, instance norm.

use super::inputs::rows_of;
use crate::common::batch_norms;
use crate::common::labelled::{
    Row, against_other_releases, against_recordings, against_sizes, data, leaf, leaf_of, row, row_with, turned_back,
};
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;
const HALVES: [(&str, DType); 2] = [("f16", DType::F16), ("bf16", DType::BF16)];

type One = fn(&Tensor) -> Result<Tensor>;
type As = fn(&Tensor, DType) -> Result<Tensor>;

/// Softmax with `dtype=`.
fn softmax_in_a_type(rows: &mut Vec<Row>) {
    let forms: [(&str, As); 5] = [
        ("softmax", |x, t| ops::softmax_as(x, 1, t)),
        ("log_softmax", |x, t| ops::log_softmax_as(x, 1, t)),
        ("softmax_0", |x, t| ops::softmax_as(x, 0, t)),
        ("log_softmax_0", |x, t| ops::log_softmax_as(x, 0, t)),
        ("softmax_turned_grad", |x, t| turned_back(&ops::softmax_as(x, 1, t)?)),
    ];
    let narrow: [(&str, As); 2] =
        [("softmax_f32", |x, t| ops::softmax_as(x, 1, t)), ("log_softmax_f32", |x, t| ops::log_softmax_as(x, 1, t))];
    for (n, dtype) in HALVES {
        for (name, f) in forms {
            rows.push(row(format!("{name}_dtype_{n}"), dtype, leaf_of(&[64, 256]), move |t| f(&t[0], F32)));
        }
        for (name, f) in narrow {
            let inputs = |d: &Device, _| vec![leaf(d, &[64, 256], F32)];
            rows.push(row(format!("{name}_dtype_{n}"), dtype, inputs, move |t| f(&t[0], dtype)));
        }
        rows.extend([
            row(format!("softmax_turned_dtype_{n}"), dtype, leaf_of(&[256, 64]), |t| {
                ops::softmax_as(&ops::t(&t[0])?, 1, F32)
            }),
            row(format!("softmax_dtype_{n}_same"), dtype, leaf_of(&[64, 256]), move |t| {
                ops::softmax_as(&t[0], 1, dtype)
            }),
            row(format!("softmax_dtype_autocast_{n}"), dtype, leaf_of(&[64, 256]), |t| ops::softmax_as(&t[0], 1, F32)),
        ]);
    }
}

/// In four groups, in one, in one per channel.
fn group_norms(rows: &mut Vec<Row>) {
    const PLANES: &[usize] = &[8, 16, 20, 20];
    let plain: One = |x| Ok(x.clone());
    let turn: One = |x| ops::transpose(x, 0, 1);
    let mut add = |name: String, dtype, dims: &'static [usize], groups, before: One, after: One| {
        let affine = !name.contains("plain");
        let wants = !name.ends_with("data");
        let input = move |d: &Device, t| vec![if wants { leaf(d, dims, t) } else { data(d, dims, t) }];
        // A rotated image has its channels in front.
        let count = if name.ends_with("_turned") { dims[0] } else { dims[1] };
        let parameter = if name.contains("autocast") { F32 } else { dtype };
        let parameters = move |d: &Device, _| vec![leaf(d, &[count], parameter), leaf(d, &[count], parameter)];
        rows.push(row_with(name, dtype, parameters, input, move |p, t| {
            let (weight, bias) = (affine.then_some(&p[0]), affine.then_some(&p[1]));
            after(&ops::group_norm(&before(&t[0])?, groups, weight, bias, 1e-5)?)
        }));
    };
    for (name, groups) in [("", 4), ("_plain", 4), ("_1", 1), ("_channels", 16)] {
        let name = format!("group_norm{name}");
        add(name.clone(), F32, PLANES, groups, plain, plain);
        add(format!("{name}_no_grad"), F32, PLANES, groups, plain, plain);
        add(format!("{name}_data"), F32, PLANES, groups, plain, plain);
        add(format!("{name}_autocast_f16"), DType::F16, PLANES, groups, plain, plain);
        add(format!("{name}_turned"), F32, &[16, 8, 20, 20], groups, turn, plain);
        add(format!("{name}_turned_grad"), F32, PLANES, groups, plain, |x| ops::contiguous(&ops::transpose(x, 0, 1)?));
    }
    for (form, dims) in [("3d", &[8, 16, 50][..]), ("small", &[8, 16, 2, 2]), ("many", &[1024, 16, 20, 20])] {
        add(format!("group_norm_{form}"), F32, dims, 4, plain, plain);
    }
    let turn_back: One = |x| ops::contiguous(&ops::transpose(x, 0, 1)?);
    for (n, dtype) in HALVES {
        for (name, groups) in [("", 4), ("_1", 1), ("_channels", 16)] {
            add(format!("group_norm{name}_{n}"), dtype, PLANES, groups, plain, plain);
            add(format!("group_norm{name}_{n}_no_grad"), dtype, PLANES, groups, plain, plain);
        }
        add(format!("group_norm_{n}_turned"), dtype, &[16, 8, 20, 20], 4, turn, plain);
        add(format!("group_norm_{n}_turned_grad"), dtype, PLANES, 4, plain, turn_back);
    }
    let one_position: [(&str, &[usize]); 4] =
        [("2d", &[8, 16]), ("3d", &[8, 16, 1]), ("4d", &[8, 16, 1, 1]), ("5d", &[8, 16, 1, 1, 1])];
    for (form, dims) in one_position {
        for (name, groups) in [("", 4), ("_plain", 4), ("_channels", 16)] {
            add(format!("group_norm_one_{form}{name}"), F32, dims, groups, plain, plain);
            add(format!("group_norm_one_{form}{name}_no_grad"), F32, dims, groups, plain, plain);
        }
    }
    add("group_norm_one_4d_data".into(), F32, &[8, 16, 1, 1], 4, plain, plain);
    for name in ["", "_plain"] {
        add(format!("group_norm_channel{name}"), F32, &[8, 1, 20, 20], 1, plain, plain);
        add(format!("group_norm_channel_3d{name}"), F32, &[8, 1, 50], 1, plain, plain);
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    softmax_in_a_type(&mut rows);
    group_norms(&mut rows);
    rows.extend(batch_norms::rows());
    rows
}

against_recordings! {
    "../../golden/events/norm.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

against_other_releases! { "../../golden/events/releases/norm.json", rows(), |profile| profile }

fn of_sizes() -> Vec<Row> {
    rows_of(&[
        ("instance_norm", &[('l', &[8, 16, 20, 20])], |t| ops::instance_norm(&t[0], None, None, 1e-5)),
        ("instance_norm_affine", &[('l', &[8, 16, 20, 20]), ('l', &[16]), ('l', &[16])], |t| {
            ops::instance_norm(&t[0], Some(&t[1]), Some(&t[2]), 1e-5)
        }),
    ])
}

against_sizes! { "../../golden/events/sizes/norm.json", of_sizes() }
