//! Cases of `memcore::ops`, folder `attention`.

use memcore::ops::{self, AttentionOptions};
use memcore::{Array, Result, Tensor};

use super::arguments::{Argument, OperatorCase, case, mask, tensor};

const HEADS: &[Argument] = &[tensor(&[2, 2, 5, 4]), tensor(&[2, 2, 5, 4]), tensor(&[2, 2, 5, 4])];
const EIGHTS: &[Argument] = &[tensor(&[1, 4, 5, 8]), tensor(&[1, 2, 5, 8]), tensor(&[1, 2, 5, 8])];
const GROUPED_HEADS: &[Argument] = &[tensor(&[1, 4, 5, 4]), tensor(&[1, 2, 5, 4]), tensor(&[1, 2, 5, 4])];

fn causal(x: &Tensor) -> Result<Tensor> {
    let t = x.dims().get(2).copied().unwrap_or(1);
    Ok(Tensor::from_array(ops::causal_mask(x.device(), t)?))
}

fn fused(x: &[Tensor], causal: bool, mask: Option<&Tensor>) -> Result<Tensor> {
    ops::scaled_dot_product_attention(
        &x[0],
        &x[1],
        &x[2],
        mask,
        AttentionOptions { causal, ..AttentionOptions::default() },
    )
}

fn turned(x: &Tensor) -> Result<Tensor> {
    let angles: Vec<f64> = (0..6).map(|i| f64::from(i) * 0.7).collect();
    let table = |f: fn(f64) -> f64| -> Result<Array> {
        let array = Array::empty(x.device(), &[3, 2], x.dtype().accumulator())?;
        let values: Vec<f32> = angles.iter().map(|&a| f(a) as f32).collect();
        memcore::nn::write_f32(&array, &values)?;
        Ok(array)
    };
    ops::rope(x, &table(f64::cos)?, &table(f64::sin)?)
}

pub(super) const CASES: &[OperatorCase] = &[
    case("attention_eager", HEADS, |x| ops::attention_eager(&x[0], &x[1], &x[2], Some(&causal(&x[0])?), 0.0, true)),
    case("attention_with_weights", HEADS, |x| {
        Ok(ops::attention_with_weights(&x[0], &x[1], &x[2], Some(&causal(&x[0])?), 0.0, true)?.0)
    }),
    case("attention_eager.grouped", GROUPED_HEADS, |x| ops::attention_eager(&x[0], &x[1], &x[2], None, 0.0, false)),
    case("scaled_dot_product_attention", HEADS, |x| fused(x, false, None)),
    case("scaled_dot_product_attention.causal", HEADS, |x| fused(x, true, None)),
    case("scaled_dot_product_attention.eights", EIGHTS, |x| fused(x, true, None)),
    case("scaled_dot_product_attention.eights_turned", EIGHTS, |x| {
        let [q, k, v] = [0, 1, 2].map(|i| ops::contiguous(&ops::transpose(&x[i], 1, 2)?));
        let [q, k, v] = [q?, k?, v?].map(|x| ops::transpose(&x, 1, 2));
        fused(&[q?, k?, v?], false, None)
    }),
    case("scaled_dot_product_attention.grouped", GROUPED_HEADS, |x| fused(x, true, None)),
    case("scaled_dot_product_attention.mask", HEADS, |x| {
        let seen: Vec<u8> = (0..25).map(|i| u8::from(i % 6 == 0 || i % 4 == 1)).collect();
        fused(x, false, Some(&mask(x[0].device(), &[5, 5], &seen)?))
    }),
    case("rope", &[tensor(&[2, 3, 2, 4])], |x| turned(&x[0])),
];
