//! Attention in PyTorch with cuDNN: when it uses cuDNN's kernel, the allocations and frees in order, and their operators; also the kernel that it uses
//! for values of another width and for causal attention that is not square.
//!
//! The expectation is `golden/cudnn_attention_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

use crate::common::labelled::{Row, against_other_releases, against_recordings, data, leaf, observe};
use memcore::profile::Convolution;
use memcore::{DType, Device, Profile, Result, Tensor, ops};

/// Batch, heads of queries, heads of keys, queries, keys, widths of a head of keys and of one of values.
const SIZES: [[usize; 7]; 15] = [
    [2, 4, 4, 64, 64, 32, 32],
    [2, 4, 4, 100, 100, 64, 64],
    [2, 4, 4, 64, 64, 20, 20],
    [2, 4, 2, 64, 64, 32, 32],
    [2, 4, 4, 64, 64, 128, 128],
    [1, 4, 4, 200, 200, 160, 160],
    [2, 4, 4, 33, 80, 64, 64],
    [2, 4, 4, 1, 40, 64, 64],
    [2, 4, 4, 40, 1, 64, 64],
    [3, 1, 1, 64, 64, 32, 32],
    [1, 2, 2, 64, 64, 256, 256],
    [1, 2, 2, 64, 64, 320, 320],
    [2, 4, 4, 64, 64, 64, 32],
    [1, 2, 2, 64, 64, 192, 128],
    [2, 4, 4, 64, 64, 136, 136],
];

const FORMS: [&str; 11] =
    ["causal", "plain", "mask", "learned", "nograd", "drop", "heads", "heads_turned", "packed", "summed", "turned"];

/// Queries, keys and values: position by position as projections give them, or head by head, or all in one; and what is added to the scores.
fn inputs(device: &Device, dtype: DType, [b, h, hk, t, s, d, dv]: [usize; 7], form: &str) -> Vec<Tensor> {
    let of = |dims: &[usize]| leaf(device, dims, dtype);
    let mut inputs = match form {
        "packed" => vec![of(&[b, t, 3, h, d])],
        "heads" | "heads_turned" => vec![of(&[b, h, t, d]), of(&[b, hk, s, d]), of(&[b, hk, s, dv])],
        _ => vec![of(&[b, t, h, d]), of(&[b, s, hk, d]), of(&[b, s, hk, dv])],
    };
    match form {
        "mask" => inputs.push(data(device, &[b, 1, t, s], dtype)),
        "learned" => inputs.push(of(&[b, 1, t, s])),
        _ => {}
    }
    inputs
}

fn attention(x: &[Tensor], form: &str) -> Result<Tensor> {
    let options = ops::AttentionOptions {
        causal: form == "causal",
        dropout: if form == "drop" { 0.1 } else { 0.0 },
        ..ops::AttentionOptions::default()
    };
    let heads = |x: &Tensor| ops::transpose(x, 1, 2);
    let part = |i: usize| heads(&ops::select(&x[0], 2, i)?);
    let [q, k, v] = match form {
        "packed" => [part(0)?, part(1)?, part(2)?],
        "heads" | "heads_turned" => [x[0].clone(), x[1].clone(), x[2].clone()],
        _ => [heads(&x[0])?, heads(&x[1])?, heads(&x[2])?],
    };
    let y = ops::scaled_dot_product_attention(&q, &k, &v, x.get(3), options)?;
    drop((q, k, v));
    match form {
        "summed" => ops::sum(&y),
        "turned" | "heads_turned" => ops::contiguous(&heads(&y)?),
        _ => Ok(y),
    }
}

fn attention_row(name: &str, dtype: DType, sizes: [usize; 7], form: &'static str) -> Row {
    let [b, h, hk, t, s, d, dv] = sizes;
    Row {
        name: format!("{name}_{b}x{h}x{hk}x{t}x{s}x{d}x{dv}_{form}"),
        dtype,
        autocast: false,
        records: form != "nograd",
        parameters: Box::new(|_, _| Vec::new()),
        inputs: Box::new(move |device, dtype| inputs(device, dtype, sizes, form)),
        run: Box::new(move |_, x| attention(x, form)),
    }
}

fn rows(only: &[&str]) -> Vec<Row> {
    let mut rows = Vec::new();
    for sizes @ [_, h, hk, t, s, d, dv] in SIZES {
        for form in FORMS.into_iter().filter(|form| *form != "packed" || (h == hk && t == s && d == dv)) {
            rows.push(attention_row("bf16", DType::BF16, sizes, form));
            if ["causal", "mask", "drop"].contains(&form) {
                rows.push(attention_row("f16", DType::F16, sizes, form));
            }
        }
    }
    rows.retain(|row| only.is_empty() || only.iter().any(|sizes| row.name.contains(sizes)));
    rows
}

fn with_cudnn(profile: Profile, workspace_bytes: u64) -> Profile {
    // The recordings' stand-in for cuDNN names the same bytes for every plan.
    let convolution = Convolution::Cudnn { workspace_bytes };
    Profile { convolution, cudnn_attention_repeats_gradients: false, ..profile }
}

/// The workspaces of gradients that PyTorch 2.11's wheel allocated with its own cuDNN (9.19), on compute capability 9.0, in both 16-bit types. With as many
/// heads of keys as of queries the plan takes 256 bytes.
#[test]
fn a_plan_keeps_gradients_for_every_query_head() {
    let recorded: [([usize; 7], i64); 9] = [
        ([2, 32, 8, 1024, 1024, 128, 128], 67371264),
        ([2, 32, 8, 1000, 1000, 128, 128], 65792256),
        ([1, 8, 2, 512, 512, 64, 64], 2113792),
        ([2, 8, 4, 256, 512, 64, 64], 3162368),
        ([2, 6, 1, 300, 300, 96, 96], 2779456),
        ([2, 8, 8, 512, 512, 64, 64], 2130176),
        ([3, 8, 2, 129, 257, 32, 32], 1198432),
        ([1, 8, 2, 64, 64, 128, 64], 461056),
        ([2, 4, 2, 17, 33, 80, 80], 128800),
    ];
    let profile = Profile::torch_2_11(90);
    let profile = Profile { convolution: Convolution::Cudnn { workspace_bytes: 256 }, ..profile };
    for (sizes, bytes) in recorded {
        for dtype in [DType::BF16, DType::F16] {
            let [_, forward, _, backward, _] =
                observe(&attention_row("", dtype, sizes, "heads"), profile.clone()).unwrap();
            let is_made = |events: &[(i64, String)]| events.iter().any(|(event, _)| *event == bytes);
            assert!(is_made(&backward) && !is_made(&forward), "{sizes:?}: {bytes} are not among {backward:?}");
        }
    }
}

against_recordings! {
    "../golden/cudnn_attention_events.json", rows(&[]);
    as_pytorch_2_11: "2.11-sm90", with_cudnn(Profile::torch_2_11(90), 4096);
    as_pytorch_2_15: "2.15-sm90", with_cudnn(Profile::torch_2_15(90), 0);
}

against_other_releases! { "../golden/releases/cudnn_attention_events.json", rows(&[]), |profile| with_cudnn(profile, 4096) }

/// Heads wider than 128 follow other rules.
mod on_10_0 {
    use super::*;

    const WIDE: [&str; 3] = ["160x160_", "136x136_", "192x128_"];

    mod with_2_11 {
        use super::*;

        against_recordings! {
            "../golden/cudnn_attention_events.json", rows(&[&WIDE[..], &["256x256_"]].concat());
            as_pytorch: "2.11-sm100", with_cudnn(Profile::torch_2_11(100), 4096);
        }
    }

    // Its gradient for heads of 256 is an engine of cuDNN's own, which no stand-in has.
    against_recordings! {
        "../golden/cudnn_attention_events.json", rows(&WIDE);
        as_pytorch_2_15: "2.15-sm100", with_cudnn(Profile::torch_2_15(100), 0);
    }
}

mod without_cudnn {
    use super::*;

    against_recordings! {
        "../golden/cudnn_attention_events.json", rows(&["33x80x64x64_", "64x64x64x32_", "192x128_"]);
        as_pytorch_2_11: "2.11-sm90-without", Profile::torch_2_11(90);
        as_pytorch_2_15: "2.15-sm90-without", Profile::torch_2_15(90);
    }
}
