//! Recurrent networks and their cells.

use memcore::ops::{self, Recurrent};
use memcore::{Result, Tensor};

use super::super::call::Call;
use super::super::value::Made;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("lstm.input", lstm),
    ("gru.input", |c| of_one_state(c, ops::gru)),
    ("rnn_tanh.input", |c| of_one_state(c, ops::rnn_tanh)),
    ("rnn_relu.input", |c| of_one_state(c, ops::rnn_relu)),
    ("lstm_cell.default", |c| {
        let [hidden, memory] = c.tensors("hx")?[..] else { return Err(c.error("expected two states")) };
        Ok(Made::tensors(ops::lstm_cell(c.tensor("input")?, [hidden, memory], &weights(c)?)?))
    }),
    ("gru_cell.default", |c| one_cell(c, ops::gru_cell)),
    ("rnn_tanh_cell.default", |c| one_cell(c, ops::rnn_tanh_cell)),
    ("rnn_relu_cell.default", |c| one_cell(c, ops::rnn_relu_cell)),
];

/// Returns the layers, and refuses those of an LSTM with `proj_size`: each has one weight more.
fn structure(c: &Call<'_>) -> Result<Recurrent> {
    let structure = Recurrent {
        layers: usize::try_from(c.int("num_layers")?).map_err(|_| c.error("a negative number of layers"))?,
        bidirectional: c.flag("bidirectional", false)?,
        dropout: c.float("dropout")?,
        training: c.flag("train", false)?,
        batch_first: c.flag("batch_first", false)?,
    };
    let of_each = if c.flag("has_biases", true)? { 4 } else { 2 };
    let each = structure.layers * if structure.bidirectional { 2 } else { 1 };
    match c.tensors("params")?.len() == each * (of_each + 1) {
        true => Err(c.error("an LSTM with proj_size is not supported")),
        false => Ok(structure),
    }
}

fn lstm(c: &Call<'_>) -> Result<Made> {
    let [hidden, memory] = c.tensors("hx")?[..] else { return Err(c.error("expected two first states")) };
    Ok(Made::tensors(ops::lstm(c.tensor("input")?, [hidden, memory], &c.tensors("params")?, structure(c)?)?))
}

type OfOneState = fn(&Tensor, &Tensor, &[&Tensor], Recurrent) -> Result<[Tensor; 2]>;

fn of_one_state(c: &Call<'_>, run: OfOneState) -> Result<Made> {
    Ok(Made::tensors(run(c.tensor("input")?, c.tensor("hx")?, &c.tensors("params")?, structure(c)?)?))
}

type OneCell = fn(&Tensor, &Tensor, &[&Tensor]) -> Result<Tensor>;

fn one_cell(c: &Call<'_>, run: OneCell) -> Result<Made> {
    Ok(Made::tensor(run(c.tensor("input")?, c.tensor("hx")?, &weights(c)?)?))
}

/// Returns the weights of a cell, and its biases if it has any.
fn weights<'a>(c: &Call<'a>) -> Result<Vec<&'a Tensor>> {
    let biases = ["b_ih", "b_hh"].into_iter().filter_map(|name| c.maybe_tensor(name).transpose());
    [c.tensor("w_ih"), c.tensor("w_hh")].into_iter().chain(biases).collect()
}
