//! Cases of `memcore::ops`, folder `recurrent`.

use memcore::ops::{self, Recurrent};
use memcore::{Result, Tensor};

use super::arguments::{Argument, OperatorCase, case, flattened, from, tensor};

const LSTM: &[Argument] = &[
    tensor(&[3, 2, 4]),
    tensor(&[1, 2, 3]),
    tensor(&[1, 2, 3]),
    tensor(&[12, 4]),
    tensor(&[12, 3]),
    tensor(&[12]),
    tensor(&[12]),
];

const LSTM_CELL: &[Argument] = &[
    tensor(&[2, 4]),
    tensor(&[2, 3]),
    tensor(&[2, 3]),
    tensor(&[12, 4]),
    tensor(&[12, 3]),
    tensor(&[12]),
    tensor(&[12]),
];

const GRU: &[Argument] =
    &[tensor(&[3, 2, 4]), tensor(&[1, 2, 3]), tensor(&[9, 4]), tensor(&[9, 3]), tensor(&[9]), tensor(&[9])];
const GRU_CELL: &[Argument] =
    &[tensor(&[2, 4]), tensor(&[2, 3]), tensor(&[9, 4]), tensor(&[9, 3]), tensor(&[9]), tensor(&[9])];
const RNN: &[Argument] =
    &[tensor(&[3, 2, 4]), tensor(&[1, 2, 3]), tensor(&[3, 4]), tensor(&[3, 3]), tensor(&[3]), tensor(&[3])];
const RNN_CELL: &[Argument] =
    &[tensor(&[2, 4]), tensor(&[2, 3]), tensor(&[3, 4]), tensor(&[3, 3]), tensor(&[3]), tensor(&[3])];
const GRU_LAYERS: &[Argument] = &[
    tensor(&[2, 3, 2]),
    tensor(&[4, 2, 2]),
    tensor(&[6, 2]),
    tensor(&[6, 2]),
    tensor(&[6, 2]),
    tensor(&[6, 2]),
    tensor(&[6, 4]),
    tensor(&[6, 2]),
    tensor(&[6, 4]),
    tensor(&[6, 2]),
];

const CELLS: &[Argument] = &[
    tensor(&[2, 3, 2]),
    tensor(&[4, 2, 2]),
    tensor(&[4, 2, 2]),
    tensor(&[8, 2]),
    tensor(&[8, 2]),
    tensor(&[8, 2]),
    tensor(&[8, 2]),
    tensor(&[8, 4]),
    tensor(&[8, 2]),
    tensor(&[8, 4]),
    tensor(&[8, 2]),
];

const ONE_LAYER: Recurrent =
    Recurrent { layers: 1, bidirectional: false, dropout: 0.0, training: true, batch_first: false };

const TWO_LAYERS: Recurrent = Recurrent { layers: 2, bidirectional: true, batch_first: true, ..ONE_LAYER };

fn lstm(x: &[Tensor], options: Recurrent) -> Result<Tensor> {
    flattened(&ops::lstm(&x[0], [&x[1], &x[2]], &from(x, 3), options)?)
}

pub(super) const CASES: &[OperatorCase] = &[
    case("lstm", LSTM, |x| lstm(x, ONE_LAYER)),
    case("lstm.layers", CELLS, |x| lstm(x, TWO_LAYERS)),
    case("lstm_cell", LSTM_CELL, |x| flattened(&ops::lstm_cell(&x[0], [&x[1], &x[2]], &from(x, 3))?)),
    case("gru", GRU, |x| flattened(&ops::gru(&x[0], &x[1], &from(x, 2), ONE_LAYER)?)),
    case("gru.layers", GRU_LAYERS, |x| flattened(&ops::gru(&x[0], &x[1], &from(x, 2), TWO_LAYERS)?)),
    case("gru_cell", GRU_CELL, |x| ops::gru_cell(&x[0], &x[1], &from(x, 2))),
    case("rnn_tanh", RNN, |x| flattened(&ops::rnn_tanh(&x[0], &x[1], &from(x, 2), ONE_LAYER)?)),
    case("rnn_relu", RNN, |x| flattened(&ops::rnn_relu(&x[0], &x[1], &from(x, 2), ONE_LAYER)?)),
    case("rnn_tanh_cell", RNN_CELL, |x| ops::rnn_tanh_cell(&x[0], &x[1], &from(x, 2))),
    case("rnn_relu_cell", RNN_CELL, |x| ops::rnn_relu_cell(&x[0], &x[1], &from(x, 2))),
];
