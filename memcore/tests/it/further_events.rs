//! Operators in more forms (transposed operands, more dimensions, a requested type, two types), and further functions: they allocate and free
//! what PyTorch's do, in the same order, by the same operators of the same nodes.
//!
//! The expectation is `golden/further_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

use crate::common::batch_norms;
use crate::common::labelled::{
    Row, against_other_releases, against_recordings, data, leaf, row, row_with, turned_back,
};
use crate::common::operators::{call, operator};
use memcore::backend::kernel::Reduction;
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;
const HALVES: [(&str, DType); 2] = [("f16", DType::F16), ("bf16", DType::BF16)];
const REDUCTIONS: [(&str, Reduction); 3] =
    [("mean", Reduction::Mean), ("sum", Reduction::Sum), ("none", Reduction::None)];

type One = fn(&Tensor) -> Result<Tensor>;
type Two = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn of(dims: &'static [usize]) -> impl Fn(&Device, DType) -> Vec<Tensor> {
    move |d, t| vec![leaf(d, dims, t)]
}

fn dropout_and_index_select(rows: &mut Vec<Row>) {
    let dropout: One = |x| ops::dropout(x, 0.1, true);
    rows.extend([
        row("dropout_turned", F32, of(&[256, 64]), move |t| dropout(&ops::t(&t[0])?)),
        row("dropout_f16_turned", DType::F16, of(&[256, 64]), move |t| dropout(&ops::t(&t[0])?)),
        row("dropout_4d_turned", F32, of(&[4, 6, 8, 10]), move |t| dropout(&ops::transpose(&t[0], 1, 2)?)),
        row("dropout_part", F32, of(&[64, 256]), move |t| dropout(&ops::narrow(&t[0], 1, 0, 100)?)),
        row("dropout_part_turned", F32, of(&[64, 256]), move |t| dropout(&ops::t(&ops::narrow(&t[0], 1, 0, 100)?)?)),
        row("dropout_expanded", F32, of(&[1, 256]), move |t| dropout(&ops::expand(&t[0], &[64, 256])?)),
    ]);
    let mut select = |name: &str, dims: &'static [usize], axis: usize, turn: One| {
        let inputs = move |d: &Device, t| vec![leaf(d, dims, t), data(d, &[40], DType::I64)];
        rows.push(row(name, F32, inputs, move |t| ops::index_select(&turn(&t[0])?, axis, &t[1])));
    };
    let plain: One = |x| Ok(x.clone());
    select("index_select_turned", &[256, 64], 0, ops::t);
    select("index_select_turned_1", &[256, 64], 1, ops::t);
    select("index_select_1", &[64, 256], 1, plain);
    select("index_select_3d_1", &[4, 64, 32], 1, plain);
    select("index_select_3d_turned_1", &[4, 32, 64], 1, |x| ops::transpose(x, 1, 2));
    select("index_select_3d_turned_2", &[4, 32, 64], 2, |x| ops::transpose(x, 1, 2));
    let inputs = |d: &Device, t| vec![leaf(d, &[64, 256], t), data(d, &[40], DType::I64)];
    rows.push(row("index_select_turned_grad", F32, inputs, |t| turned_back(&ops::index_select(&t[0], 0, &t[1])?)));
}

/// Predictions, and targets without the dimension of the classes.
fn classes(dims: &'static [usize]) -> impl Fn(&Device, DType) -> Vec<Tensor> {
    move |d, t| {
        let targets: Vec<usize> = if dims.len() == 1 { vec![] } else { [&dims[..1], &dims[2..]].concat() };
        vec![leaf(d, dims, t), data(d, &targets, DType::I64)]
    }
}

fn losses_of_classes(rows: &mut Vec<Row>) {
    type Loss = fn(&Tensor, &Tensor, Reduction) -> Result<Tensor>;
    const PIXELS: &[usize] = &[2, 6, 10, 16];
    let both: [(&str, Loss); 2] = [("cross_entropy", ops::cross_entropy), ("nll_loss", ops::nll_loss)];
    let forms: [(&str, &[usize]); 5] =
        [("1d", &[256]), ("2d", &[64, 256]), ("3d", &[2, 6, 160]), ("4d", PIXELS), ("5d", &[2, 6, 5, 8, 4])];
    for (reduced, reduction) in REDUCTIONS {
        for (name, f) in both {
            for (form, dims) in forms {
                let run = move |t: &[Tensor]| f(&t[0], &t[1], reduction);
                rows.push(row(format!("{name}_{form}_{reduced}"), F32, classes(dims), run));
            }
        }
        for (form, dims) in [("", &[64, 256][..]), ("_4d", PIXELS)] {
            let run = move |t: &[Tensor]| ops::cross_entropy_smooth(&t[0], &t[1], reduction, 0.1);
            rows.push(row(format!("cross_entropy_smooth{form}_{reduced}"), F32, classes(dims), run));
        }
    }
    let mean: [Two; 2] =
        [|x, t| ops::cross_entropy(x, t, Reduction::Mean), |x, t| ops::nll_loss(x, t, Reduction::Mean)];
    let each: [Two; 2] =
        [|x, t| ops::cross_entropy(x, t, Reduction::None), |x, t| ops::nll_loss(x, t, Reduction::None)];
    let lines = |d: &Device, t| vec![leaf(d, &[2, 160, 6], t), data(d, &[2, 160], DType::I64)];
    let pixels = |d: &Device, t| vec![leaf(d, &[2, 10, 16, 6], t), data(d, &[2, 10, 16], DType::I64)];
    let turned_targets = |d: &Device, t| vec![leaf(d, PIXELS, t), data(d, &[2, 16, 10], DType::I64)];
    let weighted = |d: &Device, t| vec![leaf(d, &[64, 256], t), data(d, &[64], DType::I64), leaf(d, &[64, 2], t)];
    rows.extend([
        row("cross_entropy_3d_turned", F32, lines, move |t| mean[0](&ops::transpose(&t[0], 1, 2)?, &t[1])),
        row("nll_loss_3d_turned", F32, lines, move |t| mean[1](&ops::transpose(&t[0], 1, 2)?, &t[1])),
        row("cross_entropy_4d_turned", F32, pixels, move |t| mean[0](&ops::permute(&t[0], &[0, 3, 1, 2])?, &t[1])),
        row("cross_entropy_4d_turned_targets", F32, turned_targets, move |t| {
            mean[0](&t[0], &ops::transpose(&t[1], 1, 2)?)
        }),
        row("cross_entropy_4d_f16", DType::F16, classes(PIXELS), move |t| mean[0](&t[0], &t[1])),
        row("cross_entropy_4d_autocast_f16", DType::F16, classes(PIXELS), move |t| mean[0](&t[0], &t[1])),
        row("cross_entropy_3d_autocast_f16", DType::F16, classes(&[2, 6, 160]), move |t| mean[0](&t[0], &t[1])),
        row("nll_loss_4d_autocast_bf16", DType::BF16, classes(PIXELS), move |t| mean[1](&t[0], &t[1])),
        row("nll_loss_3d_none_turned_grad", F32, classes(&[2, 6, 160]), move |t| turned_back(&each[1](&t[0], &t[1])?)),
        row("cross_entropy_3d_none_summed", F32, classes(&[2, 6, 160]), move |t| ops::sum(&each[0](&t[0], &t[1])?)),
        row("cross_entropy_4d_none_summed", F32, classes(PIXELS), move |t| ops::sum(&each[0](&t[0], &t[1])?)),
        row("nll_loss_2d_none_summed", F32, classes(&[64, 256]), move |t| ops::sum(&each[1](&t[0], &t[1])?)),
        row("nll_loss_2d_none_weighted", F32, weighted, move |t| {
            ops::mul(&each[1](&t[0], &t[1])?, &ops::select(&t[2], 1, 0)?.detach())
        }),
    ]);
}

/// Softmax and sums with `dtype=`.
fn in_a_type(rows: &mut Vec<Row>) {
    type As = fn(&Tensor, DType) -> Result<Tensor>;
    let forms: [(&str, As); 11] = [
        ("softmax", |x, t| ops::softmax_as(x, 1, t)),
        ("log_softmax", |x, t| ops::log_softmax_as(x, 1, t)),
        ("softmax_0", |x, t| ops::softmax_as(x, 0, t)),
        ("log_softmax_0", |x, t| ops::log_softmax_as(x, 0, t)),
        ("sum", |x, t| ops::sum_as(x, &[], false, t)),
        ("sum_dim", |x, t| ops::sum_as(x, &[0], false, t)),
        ("sum_dims_kept", |x, t| ops::sum_as(x, &[0, 1], true, t)),
        ("mean", |x, t| ops::mean_as(x, &[], false, t)),
        ("mean_dim", |x, t| ops::mean_as(x, &[1], false, t)),
        ("softmax_turned_grad", |x, t| turned_back(&ops::softmax_as(x, 1, t)?)),
        ("sum_big", |x, t| ops::sum_as(x, &[], false, t)),
    ];
    let narrow: [(&str, As); 4] = [
        ("softmax_f32", |x, t| ops::softmax_as(x, 1, t)),
        ("log_softmax_f32", |x, t| ops::log_softmax_as(x, 1, t)),
        ("sum_f32", |x, t| ops::sum_as(x, &[], false, t)),
        ("mean_f32", |x, t| ops::mean_as(x, &[1], false, t)),
    ];
    for (n, dtype) in HALVES {
        for (name, f) in forms {
            let dims: &[usize] = if name == "sum_big" { &[4096, 1024] } else { &[64, 256] };
            rows.push(row(format!("{name}_dtype_{n}"), dtype, of(dims), move |t| f(&t[0], F32)));
        }
        for (name, f) in narrow {
            let inputs = |d: &Device, _| vec![leaf(d, &[64, 256], F32)];
            rows.push(row(format!("{name}_dtype_{n}"), dtype, inputs, move |t| f(&t[0], dtype)));
        }
        rows.extend([
            row(format!("softmax_turned_dtype_{n}"), dtype, of(&[256, 64]), |t| {
                ops::softmax_as(&ops::t(&t[0])?, 1, F32)
            }),
            row(format!("softmax_dtype_{n}_same"), dtype, of(&[64, 256]), move |t| ops::softmax_as(&t[0], 1, dtype)),
            row(format!("softmax_dtype_autocast_{n}"), dtype, of(&[64, 256]), |t| ops::softmax_as(&t[0], 1, F32)),
            row(format!("sum_dtype_autocast_{n}"), dtype, of(&[64, 256]), |t| ops::sum_as(&t[0], &[], false, F32)),
        ]);
    }
}

fn of_two_types(rows: &mut Vec<Row>) {
    for (n, dtype) in HALVES {
        for name in ["add", "sub", "mul", "div", "maximum", "minimum", "l1"] {
            let first = |d: &Device, t| vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], F32)];
            let second = |d: &Device, t| vec![leaf(d, &[64, 256], F32), leaf(d, &[64, 256], t)];
            let scalar = |d: &Device, t| vec![leaf(d, &[64, 256], t), leaf(d, &[], F32)];
            rows.push(row(format!("{name}_{n}_f32"), dtype, first, call(name)));
            rows.push(row(format!("{name}_f32_{n}"), dtype, second, call(name)));
            // The absolute error of two sizes is refused.
            if name != "l1" {
                rows.push(row(format!("{name}_{n}_f32_scalar"), dtype, scalar, call(name)));
            }
        }
    }
    let beside =
        |dims: &'static [usize], other| move |d: &Device, t| vec![leaf(d, &[64, 256], t), data(d, dims, other)];
    for name in ["mul", "add", "div", "sub"] {
        rows.push(row(format!("{name}_f32_i64"), F32, beside(&[64, 256], DType::I64), call(name)));
    }
    rows.extend([
        row("mul_f32_bool", F32, beside(&[64, 256], DType::Bool), call("mul")),
        row("mul_f16_bool", DType::F16, beside(&[64, 256], DType::Bool), call("mul")),
        row("mul_f32_bool_bcast", F32, beside(&[256], DType::Bool), call("mul")),
        row("mul_bool_f32", F32, |d, t| vec![data(d, &[64, 256], DType::Bool), leaf(d, &[64, 256], t)], call("mul")),
    ]);
}

/// Each of a matrix, contiguous or transposed, with a transposed gradient, under autocast and in bfloat16.
fn activations(rows: &mut Vec<Row>) {
    let all: [(&str, One); 8] = [
        ("elu", |x| ops::elu(x, 1.0)),
        ("softplus", ops::softplus),
        ("hardswish", ops::hardswish),
        ("hardsigmoid", ops::hardsigmoid),
        ("hardtanh", |x| ops::hardtanh(x, -1.0, 1.0)),
        ("relu6", ops::relu6),
        ("mish", ops::mish),
        ("logsigmoid", ops::log_sigmoid),
    ];
    for (name, f) in all {
        in_every_form(rows, name, f);
        rows.push(row(format!("{name}_turned_grad"), F32, of(&[64, 256]), move |t| turned_back(&f(&t[0])?)));
    }
    in_every_form(rows, "logsumexp", |x| ops::logsumexp(x, &[1], false));
    rows.extend([
        row("logsumexp_kept", F32, of(&[64, 256]), |t| ops::logsumexp(&t[0], &[1], true)),
        row("logsumexp_0", F32, of(&[64, 256]), |t| ops::logsumexp(&t[0], &[0], false)),
        row("logsumexp_all", F32, of(&[64, 256]), |t| ops::logsumexp(&t[0], &[0, 1], false)),
    ]);
}

fn in_every_form(rows: &mut Vec<Row>, name: &str, f: One) {
    rows.extend([
        row(name, F32, of(&[64, 256]), move |t| f(&t[0])),
        row(format!("{name}_turned"), F32, of(&[256, 64]), move |t| f(&ops::t(&t[0])?)),
        row(format!("{name}_autocast_f16"), DType::F16, of(&[64, 256]), move |t| f(&t[0])),
        row(format!("{name}_bf16"), DType::BF16, of(&[64, 256]), move |t| f(&t[0])),
    ]);
}

fn losses_of_distances(rows: &mut Vec<Row>) {
    type Loss = fn(&Tensor, &Tensor, Reduction) -> Result<Tensor>;
    let all: [(&str, Loss); 3] = [
        ("smooth_l1", |x, t, r| ops::smooth_l1_loss(x, t, r, 1.0)),
        ("huber", |x, t, r| ops::huber_loss(x, t, r, 1.0)),
        ("bce_logits", ops::binary_cross_entropy_with_logits),
    ];
    let target = |d: &Device, t| vec![leaf(d, &[64, 256], t), data(d, &[64, 256], t)];
    for (name, f) in all {
        for (reduced, reduction) in REDUCTIONS {
            rows.push(row(format!("{name}_{reduced}"), F32, target, move |t| f(&t[0], &t[1], reduction)));
        }
        let both = |d: &Device, t| vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], t)];
        let turned = |d: &Device, t| vec![leaf(d, &[256, 64], t), data(d, &[64, 256], t)];
        let mean = move |x: &Tensor, t: &Tensor| f(x, t, Reduction::Mean);
        rows.extend([
            row(format!("{name}_both"), F32, both, move |t| mean(&t[0], &t[1])),
            row(format!("{name}_autocast_f16"), DType::F16, target, move |t| mean(&t[0], &t[1])),
            row(format!("{name}_turned"), F32, turned, move |t| mean(&ops::t(&t[0])?, &t[1])),
        ]);
    }
    let bounded = |beta| move |t: &[Tensor]| ops::smooth_l1_loss(&t[0], &t[1], Reduction::Mean, beta);
    rows.extend([
        row("smooth_l1_beta", F32, target, bounded(0.5)),
        row("smooth_l1_beta0", F32, target, bounded(0.0)),
        row("huber_delta", F32, target, |t| ops::huber_loss(&t[0], &t[1], Reduction::Mean, 2.0)),
    ]);
}

/// In four groups, in one, in one per channel; and enlarged images.
fn groups_and_larger_pictures(rows: &mut Vec<Row>) {
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
    let border = |borders: &'static [[usize; 2]]| move |t: &[Tensor]| ops::pad(&t[0], borders, 1.0);
    rows.extend([
        operator("upsample_nearest").row(F32),
        row("pad", F32, of(&[64, 256]), border(&[[0, 0], [1, 2]])),
        row("pad_two", F32, of(&[64, 256]), border(&[[3, 4], [1, 2]])),
        row("pad_4d", F32, of(PLANES), border(&[[0, 0], [0, 0], [1, 1], [1, 1]])),
    ]);
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    activations(&mut rows);
    losses_of_distances(&mut rows);
    groups_and_larger_pictures(&mut rows);
    dropout_and_index_select(&mut rows);
    rows.extend(batch_norms::rows());
    losses_of_classes(&mut rows);
    in_a_type(&mut rows);
    of_two_types(&mut rows);
    rows
}

against_recordings! {
    "../golden/further_events.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

against_other_releases! { "../golden/releases/further_events.json", rows(), |profile| profile }
