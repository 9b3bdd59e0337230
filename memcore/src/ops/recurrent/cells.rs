//! The cells of LSTM and GRU, as PyTorch's fused kernels compute them on a GPU. Values are computed on the host.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record, record_many};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::error::{Error, Result};
use crate::ops::on_host;

/// Returns the states after a cell, from the sums of both products. Saves both sums, the cell state before and after, and the gates.
pub(in crate::ops) fn fused_lstm_cell(
    gates: [&Tensor; 2],
    before: &Tensor,
    biases: Option<[&Tensor; 2]>,
) -> Result<[Tensor; 2]> {
    const OP: &str = "_thnn_fused_lstm_cell";
    let [from_input, from_hidden] = gates;
    let _op = context::op(OP);
    let workspace = like(from_input.array())?;
    let (hidden, memory) = (like(before.array())?, like(before.array())?);
    let width = before.dims()[1];
    let mut sums = vec![from_input.array(), from_hidden.array()];
    sums.extend(biases.iter().flatten().map(|bias| bias.array()));
    on_host::fill(&workspace, &sums, |values| Ok(activated(&values, width)))?;
    on_host::fill(&memory, &[&workspace, before.array()], |values| {
        let of = |i: usize| {
            let [input, forget, new, _] = parts_of(&values[0], i, width);
            forget * values[1][i] + input * new
        };
        Ok((0..values[1].len()).map(of).collect())
    })?;
    on_host::fill(&hidden, &[&workspace, &memory], |values| {
        let of = |i: usize| parts_of::<4>(&values[0], i, width)[3] * values[1][i].tanh();
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

/// Returns the parts of element `i` of a state: gates, and what else is kept of each element.
fn parts_of<const N: usize>(parts: &[f64], i: usize, width: usize) -> [f64; N] {
    std::array::from_fn(|part| parts[(i / width * N + part) * width + i % width])
}

fn like(array: &Array) -> Result<Array> {
    context::within("empty_like", || Array::empty(array.device(), array.dims(), array.dtype()))
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
        let _op = context::op("_thnn_fused_lstm_cell_backward>_thnn_fused_lstm_cell_backward_impl");
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
        let output = parts_of::<4>(&self.values[0], i, self.width)[3];
        [memory + hidden * output * (1.0 - tanh * tanh), hidden]
    }

    fn of_before(&self) -> Vec<f64> {
        let of = |i: usize| self.arriving(i)[0] * parts_of::<4>(&self.values[0], i, self.width)[1];
        (0..self.values[1].len()).map(of).collect()
    }

    fn of_gates(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.values[0].len()];
        for i in 0..self.values[1].len() {
            let [input, forget, new, output] = parts_of(&self.values[0], i, self.width);
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

/// Returns the state after a cell of a GRU, from the products of input and state. Saves both products, the state before, and what the gates were.
pub(in crate::ops) fn fused_gru_cell(
    gates: [&Tensor; 2],
    before: &Tensor,
    biases: Option<[&Tensor; 2]>,
) -> Result<Tensor> {
    let [from_input, from_hidden] = gates;
    let _op = context::op("_thnn_fused_gru_cell");
    let (rows, width) = (before.dims()[0], before.dims()[1]);
    let workspace =
        context::within("empty", || Array::empty(before.device(), &[rows, GRU_PARTS * width], before.dtype()))?;
    let after = like(before.array())?;
    let mut sums = vec![before.array(), from_input.array(), from_hidden.array()];
    sums.extend(biases.iter().flatten().map(|bias| bias.array()));
    on_host::fill(&workspace, &sums, |values| Ok(gru_parts(&values, width)))?;
    on_host::fill(&after, &[&workspace], |values| {
        let of = |i: usize| {
            let [_, update, new, before, _] = parts_of(&values[0], i, width);
            new + update * (before - new)
        };
        Ok((0..rows * width).map(of).collect())
    })?;
    let mut inputs = vec![from_input, from_hidden, before];
    inputs.extend(biases.iter().flatten());
    record(after, &inputs, |saved| {
        saved.save("hidden_gates", from_hidden.array())?;
        saved.save("hx", before.array())?;
        saved.save("input_gates", from_input.array())?;
        saved.save("result1", &workspace)?;
        Ok(Box::new(GruCellBackward { biases: biases.is_some() }))
    })
}

/// What a GRU keeps of each element: the gates for reset, update and new values, the state before, and what the reset gate scales.
const GRU_PARTS: usize = 5;

/// Computes the parts from the state, both products `[batch, 3·width]`, and the biases if there are any.
fn gru_parts(values: &[Vec<f64>], width: usize) -> Vec<f64> {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut out = vec![0.0; GRU_PARTS * values[0].len()];
    for (i, &before) in values[0].iter().enumerate() {
        let of = |source: usize, gate: usize| {
            let bias = values.get(3 + source).map_or(0.0, |bias| bias[gate * width + i % width]);
            values[1 + source][(i / width * 3 + gate) * width + i % width] + bias
        };
        let [reset, update] = [0, 1].map(|gate| sigmoid(of(0, gate) + of(1, gate)));
        let scaled = of(1, 2);
        let new = (of(0, 2) + reset * scaled).tanh();
        for (part, value) in [reset, update, new, before, scaled].into_iter().enumerate() {
            out[(i / width * GRU_PARTS + part) * width + i % width] = value;
        }
    }
    out
}

struct GruCellBackward {
    biases: bool,
}

impl Function for GruCellBackward {
    fn name(&self) -> &'static str {
        "ThnnFusedGruCellBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let workspace = saved.get(3)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("_thnn_fused_gru_cell_backward");
        let (rows, width) = (grad.dims()[0], grad.dims()[1]);
        let gates = || context::within("empty", || Array::empty(grad.device(), &[rows, 3 * width], grad.dtype()));
        let (of_input, of_hidden) = (gates()?, gates()?);
        let of_before = like(grad)?;
        let slopes = |through_reset: bool| {
            move |values: Vec<Vec<f64>>| Ok(gru_slopes(&values[0], &values[1], width, through_reset))
        };
        on_host::fill(&of_input, &[&workspace, grad], slopes(false))?;
        on_host::fill(&of_hidden, &[&workspace, grad], slopes(true))?;
        on_host::fill(&of_before, &[&workspace, grad], |values| {
            Ok((0..values[1].len()).map(|i| values[1][i] * parts_of::<GRU_PARTS>(&values[0], i, width)[1]).collect())
        })?;
        let sum = |of: &Array| context::within("sum", || of.reduce(ReduceOp::Sum, &[0], false));
        let biases = if self.biases { [Some(sum(&of_input)?), Some(sum(&of_hidden)?)] } else { [None, None] };
        let of_before = needs.input(2).then_some(of_before);
        saved.done();
        let [of_input_bias, of_hidden_bias] = biases;
        Ok(smallvec![Some(of_input), Some(of_hidden), of_before, of_input_bias, of_hidden_bias])
    }
}

/// Returns the gradients of a product's three gates. The new values of the state's product went through the reset gate.
fn gru_slopes(parts: &[f64], grads: &[f64], width: usize, through_reset: bool) -> Vec<f64> {
    let mut out = vec![0.0; 3 * grads.len()];
    for (i, grad) in grads.iter().enumerate() {
        let [reset, update, new, before, scaled] = parts_of(parts, i, width);
        let of_new = grad * (1.0 - update) * (1.0 - new * new);
        let slopes = [
            of_new * scaled * reset * (1.0 - reset),
            grad * (before - new) * update * (1.0 - update),
            of_new * if through_reset { reset } else { 1.0 },
        ];
        for (gate, slope) in slopes.into_iter().enumerate() {
            out[(i / width * 3 + gate) * width + i % width] = slope;
        }
    }
    out
}
