//! Recurrent networks. Without cuDNN PyTorch composes them of two products and a cell for each element of the sequence.

use smallvec::{SmallVec, smallvec};

use super::cells::{fused_gru_cell, fused_lstm_cell};
use super::cudnn;
use super::network::{Cell, Recurrent, Weights, weights_of};
use crate::autograd::{Tensor, autocast_dtype};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::pointwise::activation::{relu, tanh};
use crate::ops::pointwise::binary::add_;
use crate::ops::pointwise::dropout::dropout;
use crate::ops::products::linear::linear;
use crate::ops::products::matrices::mm;
use crate::ops::shape::join::{cat, stack, unbind};
use crate::ops::shape::view::{t, transpose};

/// States of a cell: the hidden one, and the cell state of an LSTM.
type States = SmallVec<[Tensor; 2]>;

impl Cell {
    /// Returns the states after the cell.
    fn after(self, x: &Tensor, before: &[Tensor], weights: &Weights<'_>) -> Result<States> {
        let product = |x: &Tensor, weight: &Tensor| {
            let _op = context::op("matmul");
            mm(x, &t(weight)?)
        };
        match self {
            Cell::Lstm | Cell::Gru => {
                let from_input = product(x, weights.input)?;
                let from_hidden = product(&before[0], weights.hidden)?;
                match before {
                    [_, memory] => {
                        fused_lstm_cell([&from_input, &from_hidden], memory, weights.biases).map(States::from)
                    }
                    _ => Ok(smallvec![fused_gru_cell([&from_input, &from_hidden], &before[0], weights.biases)?]),
                }
            }
            Cell::Tanh | Cell::Relu => {
                let [of_input, of_hidden] = [0, 1].map(|i| weights.biases.map(|biases| biases[i]));
                let from_hidden = linear(&before[0], weights.hidden, of_hidden)?;
                let from_input = linear(x, weights.input, of_input)?;
                let sum = add_(&from_hidden, &from_input)?;
                Ok(smallvec![if self == Cell::Tanh { tanh(&sum)? } else { relu(&sum)? }])
            }
        }
    }
}

/// Runs an LSTM on inputs `[length, batch, i]` and the first states. Returns the outputs `[length, batch, directions·h]` and the last hidden and cell
/// states `[layers·directions, batch, h]`. `weights` has for each layer and direction: input-hidden `[4·h, i]`, hidden-hidden `[4·h, h]` and, with
/// biases, one bias `[4·h]` for each. Values of the cells are computed on the host.
///
/// # Errors
/// [`Error::Shape`] for shapes that do not fit together, [`Error::Invalid`] under autocast without cuDNN; errors of the device.
pub fn lstm(x: &Tensor, states: [&Tensor; 2], weights: &[&Tensor], options: Recurrent) -> Result<[Tensor; 3]> {
    let (out, mut last) = run("lstm", Cell::Lstm, x, &states, weights, options)?;
    let memory = last.remove(1);
    Ok([out, last.remove(0), memory])
}

/// Runs a GRU, as [`lstm`] with one state and `3·h` instead of `4·h`. Returns the outputs and the last states.
pub fn gru(x: &Tensor, state: &Tensor, weights: &[&Tensor], options: Recurrent) -> Result<[Tensor; 2]> {
    let (out, mut last) = run("gru", Cell::Gru, x, &[state], weights, options)?;
    Ok([out, last.remove(0)])
}

/// Runs a network of cells `tanh(W·x + U·h)`, as [`lstm`] with one state and `h` instead of `4·h`. Returns the outputs and the last states.
pub fn rnn_tanh(x: &Tensor, state: &Tensor, weights: &[&Tensor], options: Recurrent) -> Result<[Tensor; 2]> {
    let (out, mut last) = run("rnn_tanh", Cell::Tanh, x, &[state], weights, options)?;
    Ok([out, last.remove(0)])
}

/// Runs a network of cells `relu(W·x + U·h)`, as [`rnn_tanh`].
pub fn rnn_relu(x: &Tensor, state: &Tensor, weights: &[&Tensor], options: Recurrent) -> Result<[Tensor; 2]> {
    let (out, mut last) = run("rnn_relu", Cell::Relu, x, &[state], weights, options)?;
    Ok([out, last.remove(0)])
}

/// Returns the hidden and the cell state after one cell of an LSTM, on inputs `[batch, i]` and states `[batch, h]`; weights as [`lstm`]'s.
///
/// # Errors
/// As [`lstm`].
pub fn lstm_cell(x: &Tensor, states: [&Tensor; 2], weights: &[&Tensor]) -> Result<[Tensor; 2]> {
    let mut after = one_cell("lstm_cell", Cell::Lstm, x, &states, weights)?;
    let memory = after.remove(1);
    Ok([after.remove(0), memory])
}

/// Returns the state after one cell of a GRU, as [`lstm_cell`].
pub fn gru_cell(x: &Tensor, state: &Tensor, weights: &[&Tensor]) -> Result<Tensor> {
    Ok(one_cell("gru_cell", Cell::Gru, x, &[state], weights)?.remove(0))
}

/// Returns `tanh(W·x + U·h)`, as [`lstm_cell`].
pub fn rnn_tanh_cell(x: &Tensor, state: &Tensor, weights: &[&Tensor]) -> Result<Tensor> {
    Ok(one_cell("rnn_tanh_cell", Cell::Tanh, x, &[state], weights)?.remove(0))
}

/// Returns `relu(W·x + U·h)`, as [`lstm_cell`].
pub fn rnn_relu_cell(x: &Tensor, state: &Tensor, weights: &[&Tensor]) -> Result<Tensor> {
    Ok(one_cell("rnn_relu_cell", Cell::Relu, x, &[state], weights)?.remove(0))
}

fn one_cell(op: &'static str, cell: Cell, x: &Tensor, states: &[&Tensor], weights: &[&Tensor]) -> Result<States> {
    let named = Weights::from_weights(weights).filter(|weights| match (x.dims(), states[0].dims()) {
        (&[batch, inside], &[rows, width]) => batch == rows && weights.fit(cell.gates(), inside, width),
        _ => false,
    });
    let same = states.iter().all(|state| state.dims() == states[0].dims());
    let Some(named) = named.filter(|_| same) else {
        let detail = format!("{:?}, states {:?}, {} weights", x.dims(), states[0].dims(), weights.len());
        return Err(Error::shape(op, detail));
    };
    not_under_autocast(op)?;
    let _op = context::op(op);
    let before: States = states.iter().map(|&state| state.clone()).collect();
    cell.after(x, &before, &named)
}

fn not_under_autocast(op: &'static str) -> Result<()> {
    if autocast_dtype().is_some() { Err(Error::invalid(op, "under autocast is not supported")) } else { Ok(()) }
}

/// Runs all layers. Returns the outputs, and the last states of each kind.
fn run(
    op: &'static str,
    cell: Cell,
    x: &Tensor,
    states: &[&Tensor],
    given: &[&Tensor],
    options: Recurrent,
) -> Result<(Tensor, Vec<Tensor>)> {
    let Some(weights) = weights_of(cell, x, states, given, options) else {
        let count = given.len();
        let detail = format!("{:?}, states {:?}, {count} weights, {options:?}", x.dims(), states[0].dims());
        return Err(Error::shape(op, detail));
    };
    if cudnn::takes(x) {
        return cudnn::run(cudnn::Network { op, cell, options }, x, states, given);
    }
    not_under_autocast(op)?;
    let _op = context::op(op);
    let mut input = if options.batch_first { transpose(x, 0, 1)? } else { x.clone() };
    let first: Vec<Vec<Tensor>> = states.iter().map(|state| unbind(state, 0)).collect::<Result<_>>()?;
    let mut last: Vec<Vec<Tensor>> = vec![Vec::new(); cell.states()];
    for (layer, of_layer) in weights.chunks(weights.len() / options.layers).enumerate() {
        let mut directions = Vec::new();
        let steps = unbind(&input, 0)?;
        for (direction, weights) in of_layer.iter().enumerate() {
            let place = layer * of_layer.len() + direction;
            let state = first.iter().map(|states| states[place].clone()).collect();
            let (out, state) = one_direction(cell, &steps, state, weights, direction == 1)?;
            directions.push(stack(&out.iter().collect::<Vec<_>>(), 0)?);
            last.iter_mut().zip(state).for_each(|(last, state)| last.push(state));
        }
        drop(steps);
        input = match &directions[..] {
            [forth, back] => cat(&[forth, back], 2)?,
            _ => directions.remove(0),
        };
        // The way back is freed first, as C++ frees the later one first.
        while directions.pop().is_some() {}
        if options.dropout > 0.0 && options.training && layer + 1 < options.layers {
            input = dropout(&input, options.dropout, true)?;
        }
    }
    drop(first);
    let stacked = last.iter().map(|states| stack(&states.iter().collect::<Vec<_>>(), 0)).collect::<Result<Vec<_>>>()?;
    while last.pop().is_some() {}
    Ok((if options.batch_first { transpose(&input, 0, 1)? } else { input }, stacked))
}

/// Returns the outputs for each element of the sequence, in its order, and the last states.
fn one_direction(
    cell: Cell,
    steps: &[Tensor],
    mut state: States,
    weights: &Weights<'_>,
    reversed: bool,
) -> Result<(Vec<Tensor>, States)> {
    let mut out = Vec::with_capacity(steps.len());
    for i in 0..steps.len() {
        let x = &steps[if reversed { steps.len() - 1 - i } else { i }];
        state = cell.after(x, &state, weights)?;
        out.push(state[0].clone());
    }
    if reversed {
        out.reverse();
    }
    Ok((out, state))
}
