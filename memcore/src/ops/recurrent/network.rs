//! What recurrent networks are made of: their kinds of cells, their layers, their weights.

use crate::autograd::Tensor;

/// Structure of a recurrent network.
#[derive(Clone, Copy, Debug)]
pub struct Recurrent {
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

/// Kinds of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

impl Cell {
    /// Returns the number of gates.
    pub(in crate::ops) fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// Returns the number of states.
    pub(in crate::ops) fn states(self) -> usize {
        if self == Cell::Lstm { 2 } else { 1 }
    }
}

/// Weights of one direction of one layer: input-hidden `[gates·h, i]`, hidden-hidden `[gates·h, h]`, and their biases `[gates·h]`.
pub(in crate::ops) struct Weights<'a> {
    pub(in crate::ops) input: &'a Tensor,
    pub(in crate::ops) hidden: &'a Tensor,
    pub(in crate::ops) biases: Option<[&'a Tensor; 2]>,
}

impl<'a> Weights<'a> {
    /// Returns two weights, or two weights and two biases, by name.
    pub(in crate::ops) fn from_weights(weights: &[&'a Tensor]) -> Option<Self> {
        match *weights {
            [input, hidden] => Some(Self { input, hidden, biases: None }),
            [input, hidden, of_input, of_hidden] => Some(Self { input, hidden, biases: Some([of_input, of_hidden]) }),
            _ => None,
        }
    }

    /// True if they fit to inputs of `inside` elements and states of `width`.
    pub(in crate::ops) fn fit(&self, gates: usize, inside: usize, width: usize) -> bool {
        let biases = self.biases.iter().flatten().all(|bias| bias.dims() == [gates * width]);
        biases && self.input.dims() == [gates * width, inside] && self.hidden.dims() == [gates * width, width]
    }
}

/// Returns the weights of each direction of each layer, if all shapes fit together.
pub(in crate::ops) fn weights_of<'a>(
    cell: Cell,
    x: &Tensor,
    states: &[&Tensor],
    weights: &[&'a Tensor],
    options: Recurrent,
) -> Option<Vec<Weights<'a>>> {
    let directions = 1 + usize::from(options.bidirectional);
    let cells = options.layers * directions;
    let (&[first, second, inside], &[count, batch, width]) = (x.dims(), states[0].dims()) else { return None };
    let fits = count == cells && batch == if options.batch_first { first } else { second };
    if cells == 0 || !fits || states.iter().any(|state| state.dims() != states[0].dims()) {
        return None;
    }
    let each = weights.len().checked_div(cells).filter(|each| each * cells == weights.len() && *each > 0)?;
    let named = weights.chunks(each).map(Weights::from_weights).collect::<Option<Vec<_>>>()?;
    let inside_of = |i: usize| if i < directions { inside } else { directions * width };
    named.iter().enumerate().all(|(i, weights)| weights.fit(cell.gates(), inside_of(i), width)).then_some(named)
}

/// Where each weight of a recurrent network lies in one buffer of all, as cuDNN wants them (`cudnnGetRNNWeightParams`): first the matrices of all directions and
/// layers, then their biases. The buffer has biases, whether the network has them or not: PyTorch describes each network to cuDNN as one with two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatWeights {
    /// Number of elements of the buffer.
    pub elements: usize,
    /// Index of the first element of each weight.
    pub starts: Vec<usize>,
}

impl FlatWeights {
    /// The places of weights of these sizes: for each direction of each layer two matrices and, with `biases`, two vectors. `None` for another number of them.
    pub fn from_dims(dims: &[&[usize]], biases: bool) -> Option<Self> {
        let each = if biases { 4 } else { 2 };
        if dims.is_empty() || !dims.len().is_multiple_of(each) {
            return None;
        }
        let numel = |dims: &[usize]| dims.iter().product::<usize>();
        let cells = || dims.chunks(each);
        let mut bias: usize = cells().map(|cell| numel(cell[0]) + numel(cell[1])).sum();
        let (mut matrix, mut starts) = (0, Vec::new());
        for cell in cells() {
            let rows = cell[0].first().copied().unwrap_or_default();
            let places = [matrix, matrix + numel(cell[0]), bias, bias + rows];
            starts.extend_from_slice(&places[..each]);
            (matrix, bias) = (places[1] + numel(cell[1]), bias + 2 * rows);
        }
        Some(Self { elements: bias, starts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_lie_before_biases_and_biases_are_there_without_any() {
        let cell: [&[usize]; 4] = [&[12, 5], &[12, 3], &[12], &[12]];
        let two = [cell, [&[12, 3], &[12, 3], &[12], &[12]]].concat();
        let flat = FlatWeights::from_dims(&two, true).unwrap();
        assert_eq!(flat.starts, [0, 60, 168, 180, 96, 132, 192, 204]);
        assert_eq!(flat.elements, 216);
        let bare = FlatWeights::from_dims(&[&[12, 5], &[12, 3], &[12, 3], &[12, 3]], false).unwrap();
        assert_eq!((bare.elements, bare.starts), (216, vec![0, 60, 96, 132]));
        assert_eq!(FlatWeights::from_dims(&cell[..3], true), None);
    }
}
