//! How large cuDNN's workspace and reserve for a recurrent network are.
//!
//! Measured: `cudnnGetRNNTempSpaceSizes` of cuDNN 9.19 on an H100, for 16,617 networks. Reserves of all of them are what this file says, to the byte. Workspaces of
//! the 9,534 whose algorithm PyTorch may choose are less than 512 bytes away, but for three with a batch of one (0.4 % at most). Networks with a projection were
//! not measured.
//!
//! Predictions (`memcore/src/ops`) and the stand-in for cuDNN (`rehearsal/src/dnn`) use this crate. The stand-in is loaded into other people's processes, so this
//! crate depends on nothing.

/// How cuDNN computes a network (`cudnnRNNAlgo_t`). Workspaces differ, reserves do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// `CUDNN_RNN_ALGO_STANDARD`
    #[default]
    Standard,
    /// `CUDNN_RNN_ALGO_PERSIST_STATIC`
    Persistent,
    /// `CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H`
    Small,
}

/// A network and what it is given.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// 1, 3 (GRU) or 4 (LSTM).
    pub gates: usize,
    /// Bytes of an element.
    pub element: usize,
    /// bfloat16 has one algorithm.
    pub is_bfloat16: bool,
    /// Layers, one above the other.
    pub layers: usize,
    /// 1, or 2 for a bidirectional network.
    pub directions: usize,
    /// Whether dropout stands between layers.
    pub has_dropout: bool,
    /// Elements of an input.
    pub inside: usize,
    /// Elements of a state.
    pub width: usize,
    /// Steps of a sequence.
    pub steps: usize,
    /// Sequences at once.
    pub batch: usize,
    /// Elements of the weights without biases.
    pub matrices: usize,
}

/// Bytes of a workspace that cuDNN has for each direction of each layer.
const OF_EACH_CELL: usize = 8 << 20;

/// cuDNN begins each part of its memory at a multiple of 32 bytes.
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(32)
}

impl Sizes {
    /// Cells: one for each layer and direction.
    pub fn cells(&self) -> usize {
        self.layers * self.directions
    }

    /// One of three numbers: of cells with one gate, of GRU, of LSTM.
    fn by_cell(&self, [plain, gru, lstm]: [usize; 3]) -> usize {
        match self.gates {
            4 => lstm,
            3 => gru,
            _ => plain,
        }
    }

    /// Bytes that a training forward pass keeps for the backward pass.
    pub fn reserve(&self) -> usize {
        let states = self.steps * self.batch * self.width * self.directions;
        let bytes = states * self.element;
        // Gates, and what the cell makes of them.
        let of_cells = match self.gates {
            4 => aligned(4 * bytes * self.layers) + aligned(bytes * self.layers),
            3 => aligned(6 * bytes * self.layers),
            _ => aligned(bytes * self.layers),
        };
        let between = self.layers.saturating_sub(1);
        let dropped = if self.has_dropout { between * self.directions * aligned(states.div_ceil(8)) } else { 0 };
        256 + aligned(bytes * between) + of_cells + dropped
    }

    /// Bytes of workspace: of a forward pass and, in training, of the backward pass if that takes more.
    pub fn workspace(&self, algorithm: Algorithm, training: bool) -> usize {
        // bfloat16 has one algorithm.
        let algorithm = if self.is_bfloat16 { Algorithm::Standard } else { algorithm };
        let standard = algorithm == Algorithm::Standard;
        let forward = self.forward(standard);
        let elements = if training { forward.max(self.backward(standard)) } else { forward };
        let fixed = OF_EACH_CELL * self.cells() + 256 + aligned(8 * self.batch);
        let bytes = aligned(fixed + (self.matrices + elements) * self.element);
        if algorithm == Algorithm::Persistent { bytes.max(aligned(fixed + self.persistent())) } else { bytes }
    }

    /// Elements of a forward pass besides the matrices.
    fn forward(&self, standard: bool) -> usize {
        let Self { inside, width, gates, .. } = *self;
        let dropped = usize::from(self.has_dropout);
        let (each, states) = match (self.directions, standard) {
            (1, true) => (gates + 1 + dropped, self.by_cell([3, 5, 10])),
            (1, false) => (5 * gates + 1 + dropped, self.by_cell([4, 4, 8])),
            (_, true) => (2 * gates + 6, self.by_cell([5, 7, 12])),
            (_, false) => (6 * gates + 6, self.by_cell([5, 5, 9])),
        };
        self.steps * self.batch * (inside + each * width) + states * self.batch * width * self.cells()
    }

    /// Elements of a backward pass besides the matrices.
    fn backward(&self, standard: bool) -> usize {
        let Self { inside, width, .. } = *self;
        let several = usize::from(self.layers > 1);
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
        let each = 2 * inside + inside.max(width) + (self.gates + 3) * width;
        let elements = steps * batch * each + self.by_cell([6, 6, 12]) * batch * width + self.matrices;
        elements * self.element + 2 * batch * width + 4864 * width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cuDNN 9.19 answered on an H100.
    #[test]
    fn sizes_are_those_of_a_card() {
        use Algorithm::{Persistent, Small, Standard};
        let base = Sizes {
            gates: 4,
            element: 4,
            is_bfloat16: false,
            layers: 1,
            directions: 1,
            has_dropout: false,
            inside: 650,
            width: 650,
            steps: 35,
            batch: 20,
            matrices: 3_380_000,
        };
        assert_eq!((base.workspace(Standard, true), base.reserve()), (33_401_024, 9_100_256));
        let small = Sizes { layers: 2, directions: 2, has_dropout: true, ..base };
        let small = Sizes { inside: 64, width: 96, steps: 16, batch: 8, matrices: 344_064, ..small };
        assert_eq!((small.workspace(Small, true), small.reserve()), (36_548_928, 1_087_744));
        let gru = Sizes { gates: 3, width: 256, steps: 35, batch: 20, matrices: 1_671_168, ..small };
        assert_eq!((gru.workspace(Standard, true), gru.reserve()), (49_772_960, 18_726_656));
        let half = Sizes { element: 2, inside: 128, width: 256, ..base };
        let half = Sizes { steps: 16, batch: 8, matrices: 393_216, ..half };
        assert_eq!((half.workspace(Persistent, true), half.reserve()), (11_063_616, 327_936));
        assert_eq!(Sizes { is_bfloat16: true, ..half }.workspace(Persistent, true), 9_576_768);
    }
}
