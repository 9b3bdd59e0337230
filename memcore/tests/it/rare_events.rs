//! Operators that few networks use allocate and free what PyTorch's do, in the same order: requested sizes in forward and in backward.
//!
//! The expectation is `golden/rare_events.json`, recorded from the unmodified torch 2.11.0+cu130 wheel.

use crate::common::Events;
use crate::common::labelled::{PHASES, Row, data, leaf, observe, row};
use memcore::backend::kernel::Reduction;
use memcore::ops::{self, Edge, Recurrent};
use memcore::{Array, DType, Device, Profile, Result, Tensor};

type Run = fn(&[Tensor]) -> Result<Tensor>;

/// Inputs: `l` for leaves, `d` for data, `i` for indices, each with its sizes.
type Inputs = &'static [(char, &'static [usize])];

const X: Inputs = &[('l', &[64, 256])];
const XX: Inputs = &[('l', &[64, 256]), ('l', &[64, 256])];
const X_AND_DATA: Inputs = &[('l', &[64, 256]), ('d', &[64, 256])];
const DATA_AND_X: Inputs = &[('d', &[64, 256]), ('l', &[64, 256])];
const LONG: Inputs = &[('l', &[4, 1 << 18])];
const ELEMENTS: Inputs = &[('l', &[64, 256]), ('i', &[64, 10]), ('l', &[64, 10])];
const ELEMENTS_OF_DATA: Inputs = &[('d', &[64, 256]), ('i', &[64, 10]), ('l', &[64, 10])];
const SLICES: Inputs = &[('l', &[64, 256]), ('i', &[10]), ('l', &[10, 256])];
const SLICES_OF_DATA: Inputs = &[('d', &[64, 256]), ('i', &[10]), ('l', &[10, 256])];
const BATCHES: Inputs = &[('l', &[8, 32, 40]), ('l', &[8, 32, 48]), ('l', &[8, 48, 40])];

fn made(inputs: Inputs) -> impl Fn(&Device, DType) -> Vec<Tensor> {
    move |device, dtype| {
        let tensor = |(kind, dims): &(char, &'static [usize])| match kind {
            'l' => leaf(device, dims, dtype),
            'd' => data(device, dims, dtype),
            _ => data(device, dims, DType::I64),
        };
        inputs.iter().map(tensor).collect()
    }
}

fn rows_of(table: &[(&'static str, Inputs, Run)]) -> Vec<Row> {
    table.iter().map(|&(name, inputs, run)| row(name, DType::F32, made(inputs), run)).collect()
}

fn functions() -> Vec<Row> {
    rows_of(&[
        ("tan", X, |t| ops::tan(&t[0])),
        ("atan", X, |t| ops::atan(&t[0])),
        ("sinh", X, |t| ops::sinh(&t[0])),
        ("cosh", X, |t| ops::cosh(&t[0])),
        ("log1p", X, |t| ops::log1p(&t[0])),
        ("expm1", X, |t| ops::expm1(&t[0])),
        ("log2", X, |t| ops::log2(&t[0])),
        ("erf", X, |t| ops::erf(&t[0])),
        ("floor", X, |t| ops::floor(&t[0])),
        ("ceil", X, |t| ops::ceil(&t[0])),
        ("round", X, |t| ops::round(&t[0])),
        ("trunc", X, |t| ops::trunc(&t[0])),
        ("sign", X, |t| ops::sign(&t[0])),
        ("threshold", X, |t| ops::threshold(&t[0], 0.1, 0.5)),
        ("hardshrink", X, |t| ops::hardshrink(&t[0], 0.5)),
        ("softshrink", X, |t| ops::softshrink(&t[0], 0.5)),
        ("glu", X, |t| ops::glu(&t[0], 1)),
        ("glu_first", X, |t| ops::glu(&t[0], 0)),
    ])
}

fn reductions() -> Vec<Row> {
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
        ("kl_div_mean", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::Mean, false)),
        ("kl_div_sum", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::Sum, false)),
        ("kl_div_none", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::None, false)),
        ("kl_div_log", X_AND_DATA, |t| ops::kl_div(&t[0], &t[1], Reduction::Sum, true)),
        ("kl_div_log_both", XX, |t| ops::kl_div(&t[0], &t[1], Reduction::Sum, true)),
        ("cosine_similarity", XX, |t| ops::cosine_similarity(&t[0], &t[1], 1, 1e-8)),
        ("cosine_similarity_one", X_AND_DATA, |t| ops::cosine_similarity(&t[0], &t[1], 1, 1e-8)),
    ])
}

/// What is written to, made on the way.
fn zeros(like: &[Tensor]) -> Result<Tensor> {
    Ok(Tensor::from_array(Array::zeros(like[0].device(), &[64, 256], DType::F32)?))
}

fn indices() -> Vec<Row> {
    rows_of(&[
        ("scatter", ELEMENTS, |t| ops::scatter(&t[0], 1, &t[1], &t[2])),
        ("scatter_data", ELEMENTS_OF_DATA, |t| ops::scatter(&t[0], 1, &t[1], &t[2])),
        ("scatter_value", &ELEMENTS[..2], |t| ops::scatter_value(&t[0], 1, &t[1], 2.0)),
        ("scatter_add", ELEMENTS, |t| ops::scatter_add(&t[0], 1, &t[1], &t[2])),
        ("scatter_add_data", ELEMENTS_OF_DATA, |t| ops::scatter_add(&t[0], 1, &t[1], &t[2])),
        ("scatter_add_in_place", &ELEMENTS[1..], |t| ops::scatter_add_(&zeros(t)?, 1, &t[0], &t[1])),
        ("index_add", SLICES, |t| ops::index_add(&t[0], 0, &t[1], &t[2], 1.0)),
        ("index_add_alpha", SLICES_OF_DATA, |t| ops::index_add(&t[0], 0, &t[1], &t[2], 0.5)),
        ("index_add_in_place", &SLICES[1..], |t| ops::index_add_(&zeros(t)?, 0, &t[0], &t[1], 1.0)),
        ("index_add_temporary", SLICES, |t| {
            let twice = ops::mul_scalar(&t[2], 2.0)?;
            ops::index_add(&t[0], 0, &t[1], &twice, 1.0)
        }),
        ("index_copy", SLICES, |t| ops::index_copy(&t[0], 0, &t[1], &t[2])),
        ("index_put", SLICES, |t| ops::index_put(&t[0], &t[1], &t[2])),
        ("index_put_temporary", SLICES, |t| {
            let twice = ops::mul_scalar(&t[2], 2.0)?;
            ops::index_put(&t[0], &t[1], &twice)
        }),
        ("index_put_in_place", &SLICES[1..], |t| ops::index_put_(&zeros(t)?, &t[0], &t[1])),
        ("pad_reflected", &[('l', &[8, 16, 20, 20])], |t| ops::pad_edges(&t[0], &[[3, 1], [1, 2]], Edge::Reflected)),
        ("pad_reflected_line", &[('l', &[8, 16, 20])], |t| ops::pad_edges(&t[0], &[[1, 2]], Edge::Reflected)),
        ("pad_repeated", &[('l', &[8, 16, 20, 20])], |t| ops::pad_edges(&t[0], &[[3, 1], [1, 2]], Edge::Repeated)),
        ("pad_repeated_line", &[('l', &[8, 16, 20])], |t| ops::pad_edges(&t[0], &[[1, 2]], Edge::Repeated)),
        ("pixel_unshuffle", &[('l', &[8, 16, 20, 20])], |t| ops::pixel_unshuffle(&t[0], 2)),
    ])
}

fn products() -> Vec<Row> {
    rows_of(&[
        ("baddbmm", BATCHES, |t| ops::baddbmm(&t[0], &t[1], &t[2], 1.0, 1.0)),
        ("baddbmm_row", &[('l', &[40]), ('l', &[8, 32, 48]), ('l', &[8, 48, 40])], |t| {
            ops::baddbmm(&t[0], &t[1], &t[2], 1.0, 1.0)
        }),
        ("baddbmm_factors", BATCHES, |t| ops::baddbmm(&t[0], &t[1], &t[2], 2.0, 0.5)),
        ("baddbmm_data", &[('d', &[8, 32, 40]), ('l', &[8, 32, 48]), ('d', &[8, 48, 40])], |t| {
            ops::baddbmm(&t[0], &t[1], &t[2], 0.0, 0.5)
        }),
        ("mv", &[('l', &[64, 256]), ('l', &[256])], |t| ops::mv(&t[0], &t[1])),
        ("dot", &[('l', &[256]), ('l', &[256])], |t| ops::dot(&t[0], &t[1])),
        ("einsum_heads", &[('l', &[2, 8, 4, 16]), ('l', &[2, 10, 4, 16])], |t| {
            ops::einsum("bthd,bshd->bhts", &[&t[0], &t[1]])
        }),
        ("einsum_rows", &[('l', &[8, 32, 48]), ('l', &[48, 40])], |t| ops::einsum("bij,jk->bik", &[&t[0], &t[1]])),
        ("einsum_outer", &[('l', &[8]), ('l', &[10])], |t| ops::einsum("i,j->ij", &[&t[0], &t[1]])),
        ("einsum_batch", XX, |t| ops::einsum("bi,bi->b", &[&t[0], &t[1]])),
        ("einsum_one", X, |t| ops::einsum("ij->j", &[&t[0]])),
        ("einsum_alone", &[('l', &[6, 64]), ('l', &[6, 4])], |t| ops::einsum("ij,ik->k", &[&t[0], &t[1]])),
        ("einsum_implicit", &[('l', &[64, 256]), ('l', &[256, 8])], |t| ops::einsum("ij,jk", &[&t[0], &t[1]])),
        ("addcmul", &[('l', &[64, 256]), ('l', &[64, 256]), ('l', &[256])], |t| ops::addcmul(&t[0], &t[1], &t[2], 0.5)),
        ("lerp", &[('l', &[64, 256]), ('l', &[256])], |t| ops::lerp(&t[0], &t[1], 0.3)),
        ("clamp_both", &[('l', &[64, 256]), ('d', &[64, 256]), ('d', &[256])], |t| {
            ops::clamp_between(&t[0], Some(&t[1]), Some(&t[2]))
        }),
        ("clamp_low", &[('l', &[64, 256]), ('d', &[256])], |t| ops::clamp_between(&t[0], Some(&t[1]), None)),
        ("clamp_high", &[('l', &[64, 256]), ('d', &[256])], |t| ops::clamp_between(&t[0], None, Some(&t[1]))),
        ("pow_tensors", XX, |t| ops::pow_tensors(&t[0], &t[1])),
        ("pow_tensors_base", X_AND_DATA, |t| ops::pow_tensors(&t[0], &t[1])),
        ("pow_tensors_exponent", DATA_AND_X, |t| ops::pow_tensors(&t[0], &t[1])),
        ("instance_norm", &[('l', &[8, 16, 20, 20])], |t| ops::instance_norm(&t[0], None, None, 1e-5)),
        ("instance_norm_affine", &[('l', &[8, 16, 20, 20]), ('l', &[16]), ('l', &[16])], |t| {
            ops::instance_norm(&t[0], Some(&t[1]), Some(&t[2]), 1e-5)
        }),
    ])
}

fn from(t: &[Tensor], first: usize) -> Vec<&Tensor> {
    t[first..].iter().collect()
}

const SIMPLE: Inputs = &[('l', &[4, 6]), ('l', &[4, 8]), ('l', &[8, 6]), ('l', &[8, 8]), ('l', &[8]), ('l', &[8])];
const GRU: Inputs = &[('l', &[4, 6]), ('l', &[4, 8]), ('l', &[24, 6]), ('l', &[24, 8]), ('l', &[24]), ('l', &[24])];
const LSTM: Inputs =
    &[('l', &[4, 6]), ('l', &[4, 8]), ('l', &[4, 8]), ('l', &[32, 6]), ('l', &[32, 8]), ('l', &[32]), ('l', &[32])];

fn cells() -> Vec<Row> {
    let lstm: Run = |t| {
        let [hidden, memory] = ops::lstm_cell(&t[0], [&t[1], &t[2]], &from(t, 3))?;
        ops::mul(&hidden, &memory)
    };
    let gru: Run = |t| ops::gru_cell(&t[0], &t[1], &from(t, 2));
    let tanh: Run = |t| ops::rnn_tanh_cell(&t[0], &t[1], &from(t, 2));
    let relu: Run = |t| ops::rnn_relu_cell(&t[0], &t[1], &from(t, 2));
    rows_of(&[
        ("lstm_cell", LSTM, lstm),
        ("lstm_cell_without_biases", &LSTM[..5], lstm),
        ("gru_cell", GRU, gru),
        ("gru_cell_without_biases", &GRU[..4], gru),
        ("rnn_tanh_cell", SIMPLE, tanh),
        ("rnn_tanh_cell_without_biases", &SIMPLE[..4], tanh),
        ("rnn_relu_cell", SIMPLE, relu),
        ("rnn_relu_cell_without_biases", &SIMPLE[..4], relu),
    ])
}

const ONE: Recurrent = Recurrent { layers: 1, bidirectional: false, dropout: 0.0, training: true, batch_first: false };
const TWO: Recurrent = Recurrent { layers: 2, bidirectional: true, batch_first: true, ..ONE };

/// A sequence, the first states, and the weights of each cell.
fn sequence(gates: usize, of: Recurrent, biases: bool) -> impl Fn(&Device, DType) -> Vec<Tensor> {
    move |device, dtype| {
        let leaf = |dims: &[usize]| leaf(device, dims, dtype);
        let directions = 1 + usize::from(of.bidirectional);
        let x = if of.batch_first { [4, 3, 6] } else { [3, 4, 6] };
        let mut out = vec![leaf(&x), leaf(&[of.layers * directions, 4, 8])];
        for cell in 0..of.layers * directions {
            let inside = if cell < directions { 6 } else { 8 * directions };
            out.extend([leaf(&[gates * 8, inside]), leaf(&[gates * 8, 8])]);
            if biases {
                out.extend([leaf(&[gates * 8]), leaf(&[gates * 8])]);
            }
        }
        out
    }
}

fn sequences() -> Vec<Row> {
    type OfStates = fn(&Tensor, &Tensor, &[&Tensor], Recurrent) -> Result<[Tensor; 2]>;
    let outputs = |run: OfStates, of: Recurrent| {
        move |t: &[Tensor]| {
            let [out, last] = run(&t[0], &t[1], &from(t, 2), of)?;
            drop(last);
            Ok(out)
        }
    };
    vec![
        row("gru", DType::F32, sequence(3, ONE, true), outputs(ops::gru, ONE)),
        row("gru_layers", DType::F32, sequence(3, TWO, false), outputs(ops::gru, TWO)),
        row("rnn_tanh", DType::F32, sequence(1, ONE, true), outputs(ops::rnn_tanh, ONE)),
        row("rnn_relu_layers", DType::F32, sequence(1, TWO, true), outputs(ops::rnn_relu, TWO)),
    ]
}

#[test]
fn as_pytorch() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../golden/rare_events.json")).unwrap();
    let recorded = file["rows"].as_array().unwrap();
    let rows: Vec<Row> =
        [functions(), reductions(), indices(), products(), cells(), sequences()].into_iter().flatten().collect();
    let mut differences = Vec::new();
    for row in &rows {
        let Some(want) = recorded.iter().find(|want| want[0] == row.name) else {
            differences.push(format!("{} is not recorded", row.name));
            continue;
        };
        let found = match observe(row, Profile::torch_2_11(90)) {
            Ok(found) => found,
            Err(error) => {
                differences.push(format!("{}: {error}", row.name));
                continue;
            }
        };
        for ((phase, found), want) in PHASES.iter().zip(&found).zip(&want.as_array().unwrap()[1..]) {
            let found: Events = found.iter().map(|(event, _)| *event).collect();
            let want: Events = want.as_array().unwrap().iter().map(|event| event.as_i64().unwrap()).collect();
            if found != want {
                differences.push(format!("{}, {phase}:\n  here     {found:?}\n  recorded {want:?}", row.name));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(rows.len(), recorded.len(), "every recorded row is here");
}
