//! Losses of classes in one to five dimensions, losses of distances, divergence and similarity.

use super::inputs::{X_AND_DATA, XX, rows_of};
use crate::common::labelled::{Row, against_recordings, against_sizes, data, leaf, row, turned_back};
use memcore::backend::kernel::Reduction;
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;
const REDUCTIONS: [(&str, Reduction); 3] =
    [("mean", Reduction::Mean), ("sum", Reduction::Sum), ("none", Reduction::None)];

type Two = fn(&Tensor, &Tensor) -> Result<Tensor>;

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

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    losses_of_distances(&mut rows);
    losses_of_classes(&mut rows);
    rows
}

against_recordings! {
    "../../golden/events/loss.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

fn of_sizes() -> Vec<Row> {
    rows_of(&[
        ("kl_div_mean", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::Mean, false)),
        ("kl_div_sum", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::Sum, false)),
        ("kl_div_none", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::None, false)),
        ("kl_div_log", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::Sum, true)),
        ("kl_div_log_both", XX, |t| ops::kl_div(&t[0], &t[1], Reduction::Sum, true)),
        ("cosine_similarity", XX, |t| ops::cosine_similarity(&t[0], &t[1], 1, 1e-8)),
        ("cosine_similarity_one", X_AND_DATA, |t| ops::cosine_similarity(&t[0], &t[1], 1, 1e-8)),
    ])
}

against_sizes! { "../../golden/events/sizes/loss.json", of_sizes() }
