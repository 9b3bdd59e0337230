//! Cells and sequences of recurrent networks.

use super::inputs::{Inputs, Run, rows_of};
use crate::common::labelled::{Row, against_sizes, leaf, row};
use memcore::ops::Recurrent;
use memcore::{DType, Device, Result, Tensor, ops};

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

against_sizes! { "../../golden/events/sizes/recurrent.json", cells().into_iter().chain(sequences()).collect::<Vec<_>>() }
