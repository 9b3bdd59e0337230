//! Descriptors of tensors and of recurrent networks. The sizes of the weights follow from the description.
//!
//! Weights are stored layer by layer; a layer has the matrices of the input, of the state, and of the projection. All
//! biases follow. Reserve and workspace are as large as on a card on which they were measured (`cudnn-sizes`).

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

use cudnn_sizes::{Algorithm, Sizes};

use super::{SUCCESS, status};
use crate::answer::{Answer, Code};
use crate::argument::{In, Out};
use crate::log;

/// Most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 8;

#[derive(Clone, Debug, Default)]
struct Tensor {
    kind: c_int,
    sizes: Vec<c_int>,
    strides: Vec<c_int>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Network {
    kind: c_int,
    algorithm: Algorithm,
    has_dropout: bool,
    gates: usize,
    has_biases: bool,
    directions: usize,
    input: usize,
    hidden: usize,
    projected: usize,
    layers: usize,
}

/// A batch of sequences.
#[derive(Clone, Copy, Debug, Default)]
struct Sequences {
    steps: usize,
    batch: usize,
}

static TENSORS: LazyLock<Mutex<HashMap<usize, Tensor>>> = LazyLock::new(Mutex::default);
static NETWORKS: LazyLock<Mutex<HashMap<usize, Network>>> = LazyLock::new(Mutex::default);
/// Probability of each dropout descriptor.
static DROPOUTS: LazyLock<Mutex<HashMap<usize, f32>>> = LazyLock::new(Mutex::default);
static SEQUENCES: LazyLock<Mutex<HashMap<usize, Sequences>>> = LazyLock::new(Mutex::default);

fn keep<T>(all: &Mutex<HashMap<usize, T>>, descriptor: usize, value: T) {
    all.lock().unwrap_or_else(PoisonError::into_inner).insert(descriptor, value);
}

fn kept<T: Clone>(all: &Mutex<HashMap<usize, T>>, descriptor: usize) -> Answer<T> {
    all.lock().unwrap_or_else(PoisonError::into_inner).get(&descriptor).cloned().ok_or(Code::INVALID_VALUE)
}

fn size(value: c_int) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Size of an element in bytes, by `cudnnDataType_t`.
fn element(kind: c_int) -> usize {
    match kind {
        1 | 10 => 8,
        0 | 4 => 4,
        2 | 9 => 2,
        _ => 1,
    }
}

fn describe(descriptor: usize, kind: c_int, count: c_int, sizes: In<c_int>, strides: In<c_int>) -> c_int {
    let count = size(count).min(MAX_DIMENSIONS);
    let all = |list: In<c_int>| (0..count).map(|index| list.get_at(index)).collect::<Answer<Vec<_>>>();
    let tensor = all(sizes).map(|sizes| Tensor { kind, strides: all(strides).unwrap_or_default(), sizes });
    status(tensor.map(|tensor| keep(&TENSORS, descriptor, tensor)))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetTensorNdDescriptor(
    descriptor: usize,
    kind: c_int,
    count: c_int,
    sizes: In<c_int>,
    strides: In<c_int>,
) -> c_int {
    describe(descriptor, kind, count, sizes, strides)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetFilterNdDescriptor(
    descriptor: usize,
    kind: c_int,
    _format: c_int,
    count: c_int,
    sizes: In<c_int>,
) -> c_int {
    describe(descriptor, kind, count, sizes, In::at(0))
}

fn tell(descriptor: usize, requested: c_int, (kind, count): (Out<c_int>, Out<c_int>), lists: [Out<c_int>; 2]) -> c_int {
    let tell = || -> Answer {
        let tensor = kept(&TENSORS, descriptor)?;
        kind.set(tensor.kind)?;
        count.set(tensor.sizes.len() as c_int)?;
        for index in 0..tensor.sizes.len().min(size(requested)) {
            lists[0].set_at(index, tensor.sizes[index])?;
            if !lists[1].is_null() {
                lists[1].set_at(index, tensor.strides.get(index).copied().unwrap_or(1))?;
            }
        }
        Ok(())
    };
    status(tell())
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetTensorNdDescriptor(
    descriptor: usize,
    requested: c_int,
    kind: Out<c_int>,
    count: Out<c_int>,
    sizes: Out<c_int>,
    strides: Out<c_int>,
) -> c_int {
    tell(descriptor, requested, (kind, count), [sizes, strides])
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetFilterNdDescriptor(
    descriptor: usize,
    requested: c_int,
    kind: Out<c_int>,
    format: Out<c_int>,
    count: Out<c_int>,
    sizes: Out<c_int>,
) -> c_int {
    format.offer(0);
    tell(descriptor, requested, (kind, count), [sizes, Out::at(0)])
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetDropoutDescriptor(
    descriptor: usize,
    _handle: usize,
    probability: f32,
    _states: usize,
    _bytes: usize,
    _seed: u64,
) -> c_int {
    keep(&DROPOUTS, descriptor, probability);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cudnnRestoreDropoutDescriptor(
    descriptor: usize,
    handle: usize,
    probability: f32,
    states: usize,
    bytes: usize,
    seed: u64,
) -> c_int {
    cudnnSetDropoutDescriptor(descriptor, handle, probability, states, bytes, seed)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetRNNDescriptor_v8(
    descriptor: usize,
    algorithm: c_int,
    cell: c_int,
    biases: c_int,
    directions: c_int,
    _input_mode: c_int,
    kind: c_int,
    _precision: c_int,
    _math: c_int,
    input: c_int,
    hidden: c_int,
    projected: c_int,
    layers: c_int,
    dropout: usize,
    _flags: u32,
) -> c_int {
    const LSTM: c_int = 2;
    const GRU: c_int = 3;
    let gates = match cell {
        LSTM => 4,
        GRU => 3,
        _ => 1,
    };
    let network = Network {
        kind,
        algorithm: match algorithm {
            0 => Algorithm::Standard,
            1 => Algorithm::Persistent,
            _ => Algorithm::Small,
        },
        has_dropout: kept(&DROPOUTS, dropout).is_ok_and(|probability| probability > 0.0),
        gates,
        has_biases: biases != 0,
        directions: if directions == 1 { 2 } else { 1 },
        input: size(input),
        hidden: size(hidden),
        projected: if projected > 0 { size(projected) } else { size(hidden) },
        layers: size(layers),
    };
    keep(&NETWORKS, descriptor, network);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetRNNDataDescriptor(
    descriptor: usize,
    _kind: c_int,
    _layout: c_int,
    steps: c_int,
    batch: c_int,
    _width: c_int,
    _lengths: usize,
    _padding: usize,
) -> c_int {
    keep(&SEQUENCES, descriptor, Sequences { steps: size(steps), batch: size(batch) });
    SUCCESS
}

impl Network {
    /// Width of the input of a layer of one direction.
    fn given(&self, layer: usize) -> usize {
        if layer < self.directions { self.input } else { self.projected * self.directions }
    }

    fn is_projected(&self) -> bool {
        self.projected != self.hidden
    }

    /// Number of elements in the matrices of a layer of one direction.
    fn matrices(&self, layer: usize) -> usize {
        let projection = if self.is_projected() { self.projected * self.hidden } else { 0 };
        self.gates * self.hidden * (self.given(layer) + self.projected) + projection
    }

    fn all_matrices(&self) -> usize {
        (0..self.layers * self.directions).map(|layer| self.matrices(layer)).sum()
    }

    fn sizes(&self, of: Sequences) -> Sizes {
        const BFLOAT16: c_int = 9;
        Sizes {
            gates: self.gates,
            element: element(self.kind),
            is_bfloat16: self.kind == BFLOAT16,
            layers: self.layers,
            directions: self.directions,
            has_dropout: self.has_dropout,
            inside: self.input,
            width: self.hidden,
            steps: of.steps,
            batch: of.batch,
            matrices: self.all_matrices(),
        }
    }

    fn bytes(&self) -> usize {
        let biases = if self.has_biases { self.layers * self.directions * 2 * self.gates * self.hidden } else { 0 };
        (self.all_matrices() + biases) * element(self.kind)
    }

    /// Returns the offset in elements, the rows and the columns of a matrix of a layer, if it exists.
    fn matrix(&self, layer: usize, index: usize) -> Option<(usize, usize, usize)> {
        let before: usize = (0..layer).map(|layer| self.matrices(layer)).sum();
        let (gates, given) = (self.gates, self.given(layer));
        let of_state = before + gates * self.hidden * given;
        if index < gates {
            return Some((before + index * self.hidden * given, self.hidden, given));
        }
        if index < 2 * gates {
            return Some((of_state + (index - gates) * self.hidden * self.projected, self.hidden, self.projected));
        }
        let offset = of_state + gates * self.hidden * self.projected;
        (index == 2 * gates && self.is_projected()).then_some((offset, self.projected, self.hidden))
    }

    /// Returns the offset in elements of a bias of a layer, if it exists.
    fn bias(&self, layer: usize, index: usize) -> Option<usize> {
        let exists = self.has_biases && index < 2 * self.gates;
        exists.then(|| self.all_matrices() + (layer * 2 * self.gates + index) * self.hidden)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetRNNWeightSpaceSize(_handle: usize, network: usize, bytes: Out<usize>) -> c_int {
    status(kept(&NETWORKS, network).and_then(|network| bytes.set(network.bytes())))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetRNNWeightParams(
    _handle: usize,
    network: usize,
    layer: c_int,
    _bytes: usize,
    weights: usize,
    index: c_int,
    matrix: usize,
    matrix_address: Out<usize>,
    bias: usize,
    bias_address: Out<usize>,
) -> c_int {
    let tell = || -> Answer {
        let network = kept(&NETWORKS, network)?;
        let (layer, index) = (size(layer), size(index));
        let at = |offset: usize| weights.wrapping_add(offset * element(network.kind));
        let tensor = |rows: usize, columns: usize| {
            let sizes = vec![1, rows as c_int, columns as c_int];
            Tensor { kind: network.kind, sizes, strides: vec![(rows * columns) as c_int, columns as c_int, 1] }
        };
        let none = Tensor { kind: network.kind, ..Tensor::default() };
        let found = network.matrix(layer, index);
        matrix_address.offer(found.map_or(0, |(offset, ..)| at(offset)));
        keep(&TENSORS, matrix, found.map_or_else(|| none.clone(), |(_, rows, columns)| tensor(rows, columns)));
        let found = network.bias(layer, index);
        bias_address.offer(found.map_or(0, at));
        keep(&TENSORS, bias, found.map_or(none, |_| tensor(network.hidden, 1)));
        Ok(())
    };
    status(tell())
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetRNNTempSpaceSizes(
    _handle: usize,
    network: usize,
    mode: c_int,
    sequences: usize,
    workspace: Out<usize>,
    reserve: Out<usize>,
) -> c_int {
    const TRAINING: c_int = 1;
    log::once("unknown_size", "cudnnGetRNNTempSpaceSizes");
    let tell = || -> Answer {
        let (network, sequences) = (kept(&NETWORKS, network)?, kept(&SEQUENCES, sequences)?);
        let sizes = network.sizes(sequences);
        workspace.offer(sizes.workspace(network.algorithm, mode == TRAINING));
        reserve.offer(if mode == TRAINING { sizes.reserve() } else { 0 });
        Ok(())
    };
    status(tell())
}
