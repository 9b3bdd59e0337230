//! Fused attention on cards of seven compute capabilities: which of PyTorch's kernels is used, its allocations and frees in order, and their operators.
//!
//! The expectations are `golden/attention_events.json` and `golden/card_attention_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

use crate::common::labelled::{Row, against_recordings, data, leaf};
use memcore::{DType, Device, Profile, Result, Tensor, ops};

/// Batch, heads of queries, heads of keys, queries, keys, width of a head.
const SIZES: [[usize; 6]; 14] = [
    [2, 4, 4, 64, 64, 32],
    [2, 4, 4, 100, 100, 64],
    [2, 4, 4, 64, 64, 20],
    [2, 4, 4, 64, 64, 12],
    [2, 4, 4, 64, 64, 18],
    [2, 4, 2, 64, 64, 32],
    [2, 4, 4, 64, 64, 72],
    [2, 4, 4, 64, 64, 128],
    [1, 4, 4, 200, 200, 160],
    [2, 4, 4, 33, 80, 64],
    [2, 4, 4, 1, 40, 64],
    [3, 1, 1, 64, 64, 32],
    [1, 2, 2, 64, 64, 256],
    [1, 2, 2, 64, 64, 320],
];

/// Queries, keys and values as projections give them, position by position; a mask of numbers.
fn inputs(device: &Device, dtype: DType, [b, h, hk, t, s, d]: [usize; 6], masked: bool) -> Vec<Tensor> {
    let mut inputs = vec![
        leaf(device, &[b, t, h, d], dtype),
        leaf(device, &[b, s, hk, d], dtype),
        leaf(device, &[b, s, hk, d], dtype),
    ];
    inputs.extend(masked.then(|| data(device, &[b, 1, t, s], dtype)));
    inputs
}

fn attention(x: &[Tensor], options: ops::AttentionOptions) -> Result<Tensor> {
    let heads = |x: &Tensor| ops::transpose(x, 1, 2);
    ops::scaled_dot_product_attention(&heads(&x[0])?, &heads(&x[1])?, &heads(&x[2])?, x.get(3), options)
}

type Type = (&'static str, DType);

const F32: Type = ("f32", DType::F32);
const F16: Type = ("f16", DType::F16);
const BF16: Type = ("bf16", DType::BF16);

fn rows(types: &[Type], sizes: &[[usize; 6]], forms: &[&'static str]) -> Vec<Row> {
    let with_sizes = types.iter().flat_map(|&t| sizes.iter().map(move |&sizes| (t, sizes)));
    let each = with_sizes.flat_map(|(t, sizes)| forms.iter().map(move |&form| (t, sizes, form)));
    each.filter(|(_, [_, _, _, t, s, _], form)| t == s || *form != "causal")
        .map(|((name, dtype), sizes, form)| {
            let [b, h, hk, t, s, d] = sizes;
            let options = ops::AttentionOptions {
                causal: form == "causal",
                dropout: if form == "drop" { 0.1 } else { 0.0 },
                ..ops::AttentionOptions::default()
            };
            Row {
                name: format!("{name}_{b}x{h}x{hk}x{t}x{s}x{d}_{form}"),
                dtype,
                autocast: false,
                records: form != "nograd",
                parameters: Box::new(|_, _| Vec::new()),
                inputs: Box::new(move |device, dtype| inputs(device, dtype, sizes, form == "mask")),
                run: Box::new(move |_, x| attention(x, options)),
            }
        })
        .collect()
}

against_recordings! {
    "../golden/attention_events.json", rows(&[F32, F16, BF16], &SIZES, &["causal", "plain", "mask", "nograd", "drop"]);
    as_pytorch_2_11_before_8_0: "2.11-sm75", Profile::torch_2_11(75);
    as_pytorch_2_11_on_8_0: "2.11-sm80", Profile::torch_2_11(80);
    as_pytorch_2_11_on_9_0: "2.11-sm80", Profile::torch_2_11(90);
    as_pytorch_2_15_before_8_0: "2.15-sm75", Profile::torch_2_15(75);
    as_pytorch_2_15_on_8_0: "2.15-sm80", Profile::torch_2_15(80);
    as_pytorch_2_15_on_9_0: "2.15-sm90", Profile::torch_2_15(90);
}

mod other_releases {
    use super::*;

    against_recordings! {
        "../golden/releases/attention_events.json", rows(&[F32, F16], &SIZES, &["plain", "drop", "mask"]);
        as_pytorch_2_7_on_7_5: "2.7-sm75", Profile::named("torch-2.7-sm75").unwrap();
        as_pytorch_2_8_on_7_5: "2.8-sm75", Profile::named("torch-2.8-sm75").unwrap();
        as_pytorch_2_7_on_8_0: "2.7-sm80", Profile::named("torch-2.7-sm80").unwrap();
        as_pytorch_2_8_on_8_0: "2.8-sm80", Profile::named("torch-2.8-sm80").unwrap();
        as_pytorch_2_9_on_7_5: "2.9-sm75", Profile::named("torch-2.9-sm75").unwrap();
        as_pytorch_2_9_on_8_0: "2.9-sm80", Profile::named("torch-2.9-sm80").unwrap();
        as_pytorch_2_10_on_7_5: "2.10-sm75", Profile::named("torch-2.10-sm75").unwrap();
        as_pytorch_2_10_on_8_0: "2.10-sm80", Profile::named("torch-2.10-sm80").unwrap();
        as_pytorch_2_7_on_6_0: "2.7-sm60", Profile::named("torch-2.7-sm60").unwrap();
        as_pytorch_2_10_on_7_0: "2.10-sm70", Profile::named("torch-2.10-sm70").unwrap();
        as_pytorch_2_12_on_7_5: "2.12-sm75", Profile::named("torch-2.12-sm75").unwrap();
        as_pytorch_2_12_on_8_0: "2.12-sm80", Profile::named("torch-2.12-sm80").unwrap();
        as_pytorch_2_13_on_7_5: "2.13-sm75", Profile::named("torch-2.13-sm75").unwrap();
        as_pytorch_2_13_on_8_0: "2.13-sm80", Profile::named("torch-2.13-sm80").unwrap();
        as_pytorch_2_14_on_7_5: "2.14-sm75", Profile::named("torch-2.14-sm75").unwrap();
        as_pytorch_2_14_on_8_0: "2.14-sm80", Profile::named("torch-2.14-sm80").unwrap();
    }
}

/// Wide heads, on cards with less shared memory and on newer ones.
mod on_other_cards {
    use super::*;

    const WIDE: [[usize; 6]; 9] = [
        [2, 4, 4, 64, 64, 72],
        [2, 4, 4, 64, 64, 96],
        [2, 4, 4, 64, 64, 104],
        [2, 4, 4, 130, 64, 128],
        [1, 4, 4, 200, 200, 160],
        [1, 2, 2, 64, 64, 208],
        [1, 2, 2, 64, 64, 240],
        [1, 2, 2, 64, 130, 256],
        [1, 2, 2, 64, 64, 320],
    ];

    against_recordings! {
        "../golden/card_attention_events.json", rows(&[F32, F16], &WIDE, &["plain", "mask", "nograd", "drop"]);
        as_pytorch_2_11_on_8_6: "2.11-sm86", Profile::torch_2_11(86);
        as_pytorch_2_11_on_8_9: "2.11-sm86", Profile::torch_2_11(89);
        as_pytorch_2_11_on_12_0: "2.11-sm120", Profile::torch_2_11(120);
        as_pytorch_2_15_on_8_6: "2.15-sm86", Profile::torch_2_15(86);
        as_pytorch_2_15_on_10_0: "2.15-sm100", Profile::torch_2_15(100);
    }
}
