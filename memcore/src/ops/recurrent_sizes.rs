//! How large cuDNN's memory for a recurrent network is: weights in one buffer, workspace, reserve.
//!
//! Measured: `cudnnGetRNNWeightSpaceSize` and `cudnnGetRNNTempSpaceSizes` of cuDNN 9.19 on an H100, for 16,617 networks. Weights and reserves of all of them are
//! what this file says, to the byte. Workspaces of the 9,534 whose algorithm PyTorch may choose are less than 512 bytes away, but for three with a batch of one
//! (0.4 % at most). The stand-in for cuDNN in `rehearsal/src/dnn/recurrent_sizes.rs` has the same rules.

use super::recurrent_network::{Cell, Recurrent};
use crate::dtype::DType;
use crate::profile::Profile;

/// How cuDNN computes a network (`cudnnRNNAlgo_t`). Workspaces differ, weights and reserves do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Standard,
    /// `CUDNN_RNN_ALGO_PERSIST_STATIC`
    Persistent,
    /// `CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H`
    Small,
}

/// Sizes of a network and of what it is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) cell: Cell,
    pub(super) dtype: DType,
    pub(super) layers: usize,
    pub(super) directions: usize,
    pub(super) has_dropout: bool,
    /// Elements of an input, and of a state.
    pub(super) inside: usize,
    pub(super) width: usize,
    pub(super) steps: usize,
    pub(super) batch: usize,
}

/// Bytes of a workspace that cuDNN has for each direction of each layer.
const OF_EACH_CELL: usize = 8 << 20;

/// cuDNN begins each part of its memory at a multiple of this.
const ALIGNMENT: usize = 32;

impl Sizes {
    /// Sizes of a network on `[steps, batch, inside]`, or `[batch, steps, inside]`.
    pub(super) fn new(cell: Cell, x: (&[usize], DType), width: usize, options: Recurrent) -> Option<Self> {
        let (&[first, second, inside], dtype) = x else { return None };
        let (steps, batch) = if options.batch_first { (second, first) } else { (first, second) };
        Some(Self {
            cell,
            dtype,
            layers: options.layers,
            directions: 1 + usize::from(options.bidirectional),
            has_dropout: options.training && options.dropout > 0.0,
            inside,
            width,
            steps,
            batch,
        })
    }

    fn element(&self) -> usize {
        self.dtype.size() as usize
    }

    /// Elements of an input of one direction of one layer, by its number.
    fn given(&self, place: usize) -> usize {
        if place < self.directions { self.inside } else { self.directions * self.width }
    }

    pub(super) fn cells(&self) -> usize {
        self.layers * self.directions
    }

    /// Elements of both matrices of all directions and layers.
    fn matrices(&self) -> usize {
        (0..self.cells()).map(|place| self.cell.gates() * self.width * (self.given(place) + self.width)).sum()
    }

    /// Bytes that a training forward pass keeps for the backward pass.
    pub(super) fn reserve(&self) -> usize {
        let states = self.steps * self.batch * self.width * self.directions;
        let bytes = states * self.element();
        // Gates, and what the cell makes of them.
        let of_cells: usize = match self.cell {
            Cell::Lstm => [4, 1].into_iter().map(|times| aligned(times * bytes * self.layers)).sum(),
            Cell::Gru => aligned(6 * bytes * self.layers),
            Cell::Tanh | Cell::Relu => aligned(bytes * self.layers),
        };
        let between = self.layers - 1;
        let dropped = if self.has_dropout { between * self.directions * aligned(states.div_ceil(8)) } else { 0 };
        256 + aligned(bytes * between) + of_cells + dropped
    }

    /// Bytes of workspace: of a forward pass and, in training, of the backward pass if that takes more.
    pub(super) fn workspace(&self, algorithm: Algorithm, training: bool) -> usize {
        // bfloat16 has one algorithm.
        let algorithm = if self.dtype == DType::BF16 { Algorithm::Standard } else { algorithm };
        let forward = self.forward(algorithm);
        let elements = if training { forward.max(self.backward(algorithm)) } else { forward };
        let fixed = OF_EACH_CELL * self.cells() + 256 + aligned(8 * self.batch);
        let bytes = aligned(fixed + (self.matrices() + elements) * self.element());
        if algorithm == Algorithm::Persistent { bytes.max(aligned(fixed + self.persistent())) } else { bytes }
    }

    /// Elements of a forward pass besides the matrices.
    fn forward(&self, algorithm: Algorithm) -> usize {
        let Self { inside, width, .. } = *self;
        let (gates, standard) = (self.cell.gates(), algorithm == Algorithm::Standard);
        let all = if standard { gates } else { 5 * gates };
        let (each, states) = match (self.directions, standard) {
            (1, true) => (all + 1 + usize::from(self.has_dropout), self.by_cell([3, 5, 10])),
            (1, false) => (all + 1 + usize::from(self.has_dropout), self.by_cell([4, 4, 8])),
            (_, true) => (2 * gates + 6, self.by_cell([5, 7, 12])),
            (_, false) => (6 * gates + 6, self.by_cell([5, 5, 9])),
        };
        self.steps * self.batch * (inside + each * width) + states * self.batch * width * self.cells()
    }

    /// Elements of a backward pass besides the matrices.
    fn backward(&self, algorithm: Algorithm) -> usize {
        let Self { inside, width, .. } = *self;
        let (several, standard) = (usize::from(self.layers > 1), algorithm == Algorithm::Standard);
        let most = inside.max(width);
        let (each, states) = match (self.directions, standard) {
            (1, true) => (most + (3 - several) * width, self.by_cell([5, 5, 11])),
            (1, false) => (most + (self.by_cell([12, 17, 15]) + several) * width, self.by_cell([6, 6, 12])),
            (_, true) => (4 * most + (6 + 2 * several) * width, self.by_cell([7, 7, 13])),
            (_, false) => (4 * most + (self.by_cell([15, 20, 18]) + 2 * several) * width, self.by_cell([7, 7, 13])),
        };
        let ahead = if standard && self.directions == 1 && several == 1 { self.ahead() } else { 0 };
        self.steps * self.batch * (2 * inside + each) + (states * self.cells() + ahead) * self.batch * width
    }

    /// Steps that layers of one direction compute at the same time; the fewer, the larger the batch.
    fn ahead(&self) -> usize {
        let (first, of_each) = match (self.steps, self.batch) {
            (_, ..=8) => (16, 16),
            (128.., _) | (_, ..=16) => (8, 8),
            (_, ..=96) => (8, 4),
            _ => (8, 2),
        };
        self.steps.min(first + of_each * self.layers)
    }

    /// Bytes that only the persistent algorithm takes. PyTorch chooses it for one layer in one direction.
    fn persistent(&self) -> usize {
        let Self { inside, width, steps, batch, .. } = *self;
        let each = 2 * inside + inside.max(width) + (self.cell.gates() + 3) * width;
        let elements = steps * batch * each + self.by_cell([6, 6, 12]) * batch * width + self.matrices();
        elements * self.element() + 2 * batch * width + 4864 * width
    }

    /// One of three numbers: of cells with one gate, of GRU, of LSTM.
    fn by_cell(&self, [plain, gru, lstm]: [usize; 3]) -> usize {
        match self.cell {
            Cell::Tanh | Cell::Relu => plain,
            Cell::Gru => gru,
            Cell::Lstm => lstm,
        }
    }

    /// The algorithm that PyTorch chooses for a pass (`get_algo` in `aten/src/ATen/native/cudnn/RNN.cpp`).
    pub(super) fn algorithm(&self, profile: &Profile, forward: bool) -> Algorithm {
        let [most, most_with_gates] = if forward { [384, 192] } else { [256, 128] };
        let limit = if self.cell.gates() == 1 { most } else { most_with_gates };
        if self.dtype != DType::F64 && self.width <= limit && profile.compute_capability.is_some_and(|sm| sm >= 60) {
            return Algorithm::Small;
        }
        let suits = self.layers == 1 && self.directions == 1 && self.width <= 1024;
        let whole = self.width.is_multiple_of(128) && self.inside.is_multiple_of(128);
        let persists = self.dtype == DType::F16 && suits && whole && self.persists_on(profile);
        if persists { Algorithm::Persistent } else { Algorithm::Standard }
    }

    /// True if PyTorch takes the persistent algorithm on this card (`use_persist_device_heuristics`).
    fn persists_on(&self, profile: &Profile) -> bool {
        let Self { steps, batch, .. } = *self;
        let count = profile.multiprocessors.map_or(0, |card| card.count);
        match profile.compute_capability {
            Some(70) => {
                let suits = batch.is_multiple_of(16) && batch != 80 && batch != 112 || batch == 8;
                suits && (steps >= 40 && batch <= 128 || steps >= 20 && batch <= 96 || steps >= 10 && batch <= 32)
            }
            Some(sm @ 80..) if count >= 98 && sm % 10 != 6 => {
                let plain = self.cell == Cell::Lstm || batch < 96 || self.width < 896;
                self.cell != Cell::Gru && batch.is_multiple_of(8) && batch <= 128 && plain
            }
            _ => false,
        }
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(cell: Cell, dtype: DType, x: [usize; 3], width: usize, layers: usize, both: bool) -> Sizes {
        let dropout = if layers > 1 { 0.3 } else { 0.0 };
        let options = Recurrent { layers, bidirectional: both, dropout, training: true, batch_first: true };
        Sizes::new(cell, (&x, dtype), width, options).unwrap()
    }

    /// What PyTorch 2.11 allocated on an H100 with cuDNN 9.19: the workspaces of both passes, and the reserve.
    #[test]
    fn sizes_and_algorithms_are_those_of_a_card() {
        let card = Profile::torch_2_11(90);
        for (sizes, workspaces, reserve) in [
            (sizes(Cell::Lstm, DType::F32, [4, 16, 64], 96, 1, false), [9_179_424; 2], 123_136),
            (sizes(Cell::Lstm, DType::F32, [4, 16, 64], 256, 1, false), [10_084_640; 2], 327_936),
            (sizes(Cell::Lstm, DType::F32, [8, 16, 64], 96, 2, true), [36_548_928; 2], 1_087_744),
            (sizes(Cell::Gru, DType::F32, [20, 35, 64], 256, 2, true), [49_772_960; 2], 18_726_656),
            (sizes(Cell::Lstm, DType::F16, [8, 16, 128], 256, 1, false), [11_063_616; 2], 327_936),
            (sizes(Cell::Lstm, DType::BF16, [8, 16, 128], 256, 1, false), [9_576_768; 2], 327_936),
            (sizes(Cell::Tanh, DType::F16, [8, 16, 128], 512, 1, false), [12_312_896; 2], 131_328),
            (sizes(Cell::Lstm, DType::F32, [20, 35, 650], 650, 1, false), [33_401_024; 2], 9_100_256),
        ] {
            let found = [true, false].map(|forward| sizes.workspace(sizes.algorithm(&card, forward), true));
            assert_eq!((found, sizes.reserve()), (workspaces, reserve), "{sizes:?}");
        }
    }

    #[test]
    fn a_wide_state_has_the_small_algorithm_in_the_forward_pass_alone() {
        let card = Profile::torch_2_11(90);
        let of = |cell, width| {
            let sizes = sizes(cell, DType::F32, [4, 16, 64], width, 1, false);
            [true, false].map(|forward| sizes.algorithm(&card, forward))
        };
        assert_eq!(of(Cell::Gru, 192), [Algorithm::Small, Algorithm::Standard]);
        assert_eq!(of(Cell::Gru, 193), [Algorithm::Standard; 2]);
        assert_eq!(of(Cell::Relu, 257), [Algorithm::Small, Algorithm::Standard]);
    }
}
