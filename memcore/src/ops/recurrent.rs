//! Long short-term memory, as PyTorch computes it without cuDNN: two products and a fused cell for each element of the sequence.

use smallvec::smallvec;

use super::dropout::dropout;
use super::join::{cat, stack, unbind};
use super::matmul::mm;
use super::on_host;
use super::shape::{t, transpose};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, autocast_dtype, record_many};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::error::{Error, Result};

/// Structure of an LSTM.
#[derive(Clone, Copy, Debug)]
pub struct Lstm {
    /// Number of layers. Each layer's inputs are the outputs of the one before.
    pub layers: usize,
    /// True if each layer also runs from the end.
    pub bidirectional: bool,
    /// Probability of dropout between layers.
    pub dropout: f64,
    /// True in training, where dropout applies.
    pub training: bool,
    /// True if the batch is the first dimension of input and output.
    pub batch_first: bool,
}

/// Weights of one direction of one layer: input-hidden `[4·h, i]`, hidden-hidden `[4·h, h]`, and their biases `[4·h]`.
struct Weights<'a> {
    input: &'a Tensor,
    hidden: &'a Tensor,
    biases: Option<[&'a Tensor; 2]>,
}

/// Runs an LSTM on inputs `[length, batch, i]` and the first states. Returns the outputs `[length, batch, directions·h]` and the last hidden and cell
/// states `[layers·directions, batch, h]`. `weights` has for each layer and direction: input-hidden, hidden-hidden and, with biases, one bias for
/// each. Values of the cells are computed on the host.
///
/// # Errors
/// [`Error::Shape`] for shapes that do not fit together, [`Error::Invalid`] under autocast; errors of the device.
pub fn lstm(x: &Tensor, states: [&Tensor; 2], weights: &[&Tensor], lstm: Lstm) -> Result<[Tensor; 3]> {
    const OP: &str = "lstm";
    let cells = lstm.layers * (1 + usize::from(lstm.bidirectional));
    let each = weights.len() / cells.max(1);
    let fits = x.rank() == 3 && states.iter().all(|state| state.rank() == 3 && state.dims()[0] == cells);
    if cells == 0 || !fits || weights.len() != each * cells || !matches!(each, 2 | 4) {
        let detail = format!("{:?}, states {:?}, {} weights, {lstm:?}", x.dims(), states[0].dims(), weights.len());
        return Err(Error::shape(OP, detail));
    }
    if autocast_dtype().is_some() {
        return Err(Error::invalid(OP, "under autocast is not represented"));
    }
    let _op = context::op(OP);
    let of_cell = |cell: usize| {
        let of = &weights[cell * each..];
        Weights { input: of[0], hidden: of[1], biases: (each == 4).then(|| [of[2], of[3]]) }
    };
    let (first_hidden, first_cell) = (unbind(states[0], 0)?, unbind(states[1], 0)?);
    let mut input = if lstm.batch_first { transpose(x, 0, 1)? } else { x.clone() };
    let (mut last_hidden, mut last_cell) = (Vec::new(), Vec::new());
    for layer in 0..lstm.layers {
        let mut directions = Vec::new();
        let steps = unbind(&input, 0)?;
        for direction in 0..cells / lstm.layers {
            let cell = layer * (cells / lstm.layers) + direction;
            let state = [first_hidden[cell].clone(), first_cell[cell].clone()];
            let (out, [hidden, memory]) = one_direction(&steps, state, &of_cell(cell), direction == 1)?;
            directions.push(stack(&out.iter().collect::<Vec<_>>(), 0)?);
            last_hidden.push(hidden);
            last_cell.push(memory);
        }
        drop(steps);
        input = match &directions[..] {
            [forth, back] => cat(&[forth, back], 2)?,
            _ => directions.remove(0),
        };
        drop(directions);
        if lstm.dropout > 0.0 && lstm.training && layer + 1 < lstm.layers {
            input = dropout(&input, lstm.dropout, true)?;
        }
    }
    drop((first_hidden, first_cell));
    let stacked = |states: &[Tensor]| stack(&states.iter().collect::<Vec<_>>(), 0);
    let (hidden, memory) = (stacked(&last_hidden)?, stacked(&last_cell)?);
    drop((last_cell, last_hidden));
    let out = if lstm.batch_first { transpose(&input, 0, 1)? } else { input };
    Ok([out, hidden, memory])
}

/// Returns the outputs for each element of the sequence, in its order, and the last states.
fn one_direction(
    steps: &[Tensor],
    state: [Tensor; 2],
    weights: &Weights<'_>,
    reversed: bool,
) -> Result<(Vec<Tensor>, [Tensor; 2])> {
    let [mut hidden, mut memory] = state;
    let mut out = Vec::with_capacity(steps.len());
    let product = |x: &Tensor, weight: &Tensor| {
        let _op = context::op("matmul");
        mm(x, &t(weight)?)
    };
    for i in 0..steps.len() {
        let x = &steps[if reversed { steps.len() - 1 - i } else { i }];
        let from_input = product(x, weights.input)?;
        let from_hidden = product(&hidden, weights.hidden)?;
        [hidden, memory] = cell([&from_input, &from_hidden], &memory, weights.biases)?;
        out.push(hidden.clone());
    }
    if reversed {
        out.reverse();
    }
    Ok((out, [hidden, memory]))
}

/// Returns the states after a cell, from the sums of both products. Saves both sums, the cell state before and after, and the gates.
fn cell(gates: [&Tensor; 2], before: &Tensor, biases: Option<[&Tensor; 2]>) -> Result<[Tensor; 2]> {
    const OP: &str = "_thnn_fused_lstm_cell";
    let [from_input, from_hidden] = gates;
    if from_input.dims() != from_hidden.dims() || from_input.dims() != [before.dims()[0], 4 * before.dims()[1]] {
        let detail = format!("{:?} and {:?} for {:?}", from_input.dims(), from_hidden.dims(), before.dims());
        return Err(Error::shape(OP, detail));
    }
    let _op = context::op("_thnn_fused_lstm_cell");
    let like =
        |array: &Array| context::within("empty_like", || Array::empty(array.device(), array.dims(), array.dtype()));
    let workspace = like(from_input.array())?;
    let (hidden, memory) = (like(before.array())?, like(before.array())?);
    let width = before.dims()[1];
    let mut sums = vec![from_input.array(), from_hidden.array()];
    sums.extend(biases.iter().flatten().map(|bias| bias.array()));
    on_host::fill(&workspace, &sums, |values| Ok(activated(&values, width)))?;
    on_host::fill(&memory, &[&workspace, before.array()], |values| {
        let of = |i: usize| {
            let [input, forget, new, _] = of_gates(&values[0], i, width);
            forget * values[1][i] + input * new
        };
        Ok((0..values[1].len()).map(of).collect())
    })?;
    on_host::fill(&hidden, &[&workspace, &memory], |values| {
        let of = |i: usize| of_gates(&values[0], i, width)[3] * values[1][i].tanh();
        Ok((0..values[1].len()).map(of).collect())
    })?;
    let mut inputs = vec![from_input, from_hidden, before];
    inputs.extend(biases.iter().flatten());
    let mut states = record_many(vec![hidden, memory.clone()], &inputs, |saved| {
        saved.save("cx", before.array())?;
        saved.save("hidden_gates", from_hidden.array())?;
        saved.save("input_gates", from_input.array())?;
        saved.save("result1", &memory)?;
        saved.save("result2", &workspace)?;
        Ok(Box::new(CellBackward { biases: biases.is_some() }))
    })?
    .into_iter();
    match (states.next(), states.next()) {
        (Some(hidden), Some(memory)) => Ok([hidden, memory]),
        _ => Err(Error::invalid(OP, "no states")),
    }
}

/// Activates the gates: input, forget and output gates through the sigmoid, the new values through the hyperbolic tangent.
/// `[batch, 4·width]`, a quarter for each.
fn activated(sums: &[Vec<f64>], width: usize) -> Vec<f64> {
    let gate = |i: usize| {
        let column = i % (4 * width);
        let biases: f64 = sums[2..].iter().map(|bias| bias[column]).sum();
        let x = sums[0][i] + sums[1][i] + biases;
        if column / width == 2 { x.tanh() } else { 1.0 / (1.0 + (-x).exp()) }
    };
    (0..sums[0].len()).map(gate).collect()
}

/// Returns the four gates of element `i` of a state.
fn of_gates(gates: &[f64], i: usize, width: usize) -> [f64; 4] {
    std::array::from_fn(|gate| gates[(i / width * 4 + gate) * width + i % width])
}

struct CellBackward {
    biases: bool,
}

impl Function for CellBackward {
    fn name(&self) -> &'static str {
        "ThnnFusedLstmCellBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (before, after, gates) = (saved.get(0)?, saved.get(3)?, saved.get(4)?);
        let device = before.device();
        let _op = context::op("_thnn_fused_lstm_cell_backward>_thnn_fused_lstm_cell_backward_impl");
        let like = |array: &Array| context::within("empty_like", || Array::empty(device, array.dims(), array.dtype()));
        let (of_gates, of_before) = (like(&gates)?, like(&before)?);
        let given: Vec<&Array> = grads.iter().take(2).flatten().collect();
        let has = [0, 1].map(|i| grads.get(i).is_some_and(Option::is_some));
        let inputs: Vec<&Array> = [&gates, &before, &after].into_iter().chain(given).collect();
        let width = before.dims()[1];
        on_host::fill(&of_gates, &inputs, |values| Ok(Slopes { values: &values, has, width }.of_gates()))?;
        on_host::fill(&of_before, &inputs, |values| Ok(Slopes { values: &values, has, width }.of_before()))?;
        let bias = if self.biases {
            Some(context::within("sum", || of_gates.reduce(ReduceOp::Sum, &[0], false))?)
        } else {
            None
        };
        let of_before = needs.input(2).then_some(of_before);
        saved.done();
        Ok(smallvec![Some(of_gates.clone()), Some(of_gates), of_before, bias.clone(), bias])
    }
}

/// Gradients of a cell, from the values of the gates, the cell state before and after it, and the incoming gradients.
struct Slopes<'a> {
    values: &'a [Vec<f64>],
    /// Whether there is a gradient of the hidden state, and of the cell state.
    has: [bool; 2],
    width: usize,
}

impl Slopes<'_> {
    /// Returns the gradient that flows into the cell state after the cell, and the gradient of the hidden state.
    fn arriving(&self, i: usize) -> [f64; 2] {
        let hidden = if self.has[0] { self.values[3][i] } else { 0.0 };
        let memory = if self.has[1] { self.values[3 + usize::from(self.has[0])][i] } else { 0.0 };
        let tanh = self.values[2][i].tanh();
        let output = of_gates(&self.values[0], i, self.width)[3];
        [memory + hidden * output * (1.0 - tanh * tanh), hidden]
    }

    fn of_before(&self) -> Vec<f64> {
        let of = |i: usize| self.arriving(i)[0] * of_gates(&self.values[0], i, self.width)[1];
        (0..self.values[1].len()).map(of).collect()
    }

    fn of_gates(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.values[0].len()];
        for i in 0..self.values[1].len() {
            let [input, forget, new, output] = of_gates(&self.values[0], i, self.width);
            let [memory, hidden] = self.arriving(i);
            let slopes = [
                memory * new * input * (1.0 - input),
                memory * self.values[1][i] * forget * (1.0 - forget),
                memory * input * (1.0 - new * new),
                hidden * self.values[2][i].tanh() * output * (1.0 - output),
            ];
            for (gate, slope) in slopes.into_iter().enumerate() {
                out[(i / self.width * 4 + gate) * self.width + i % self.width] = slope;
            }
        }
        out
    }
}
