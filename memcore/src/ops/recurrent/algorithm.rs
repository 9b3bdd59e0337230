//! Which algorithm of cuDNN PyTorch chooses for a recurrent network, and the sizes on which the choice depends.

use cudnn_sizes::{Algorithm, Sizes};

use super::network::{Cell, Recurrent};
use crate::dtype::DType;
use crate::profile::Profile;

/// Sizes of a network on `[steps, batch, inside]`, or `[batch, steps, inside]`, of this type; `None` for another number of dimensions.
pub(super) fn sizes(cell: Cell, (dims, dtype): (&[usize], DType), width: usize, options: Recurrent) -> Option<Sizes> {
    let &[first, second, inside] = dims else { return None };
    let (steps, batch) = if options.batch_first { (second, first) } else { (first, second) };
    let directions = 1 + usize::from(options.bidirectional);
    let given = |place: usize| if place < directions { inside } else { directions * width };
    Some(Sizes {
        gates: cell.gates(),
        element: dtype.size() as usize,
        is_bfloat16: dtype == DType::BF16,
        layers: options.layers,
        directions,
        has_dropout: options.training && options.dropout > 0.0,
        inside,
        width,
        steps,
        batch,
        matrices: (0..options.layers * directions).map(|place| cell.gates() * width * (given(place) + width)).sum(),
    })
}

/// The algorithm that PyTorch chooses for a pass (`get_algo` in `aten/src/ATen/native/cudnn/RNN.cpp`).
pub(super) fn algorithm(of: &Sizes, profile: &Profile, forward: bool) -> Algorithm {
    let [most, most_with_gates] = if forward { [384, 192] } else { [256, 128] };
    let limit = if of.gates == 1 { most } else { most_with_gates };
    let is_double = of.element == 8;
    if !is_double && of.width <= limit && profile.compute_capability.is_some_and(|sm| sm >= 60) {
        return Algorithm::Small;
    }
    let is_half = of.element == 2 && !of.is_bfloat16;
    let suits = of.layers == 1 && of.directions == 1 && of.width <= 1024;
    let whole = of.width.is_multiple_of(128) && of.inside.is_multiple_of(128);
    if is_half && suits && whole && persists(of, profile) { Algorithm::Persistent } else { Algorithm::Standard }
}

/// True if PyTorch takes the persistent algorithm on this card (`use_persist_device_heuristics`).
fn persists(of: &Sizes, profile: &Profile) -> bool {
    let Sizes { gates, width, steps, batch, .. } = *of;
    let [of_gru, of_lstm] = [Cell::Gru, Cell::Lstm].map(Cell::gates);
    let count = profile.multiprocessors.map_or(0, |card| card.count);
    match profile.compute_capability {
        Some(70) => {
            let suits = batch.is_multiple_of(16) && batch != 80 && batch != 112 || batch == 8;
            suits && (steps >= 40 && batch <= 128 || steps >= 20 && batch <= 96 || steps >= 10 && batch <= 32)
        }
        Some(sm @ 80..) if count >= 98 && sm % 10 != 6 => {
            let plain = gates == of_lstm || batch < 96 || width < 896;
            gates != of_gru && batch.is_multiple_of(8) && batch <= 128 && plain
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(cell: Cell, dtype: DType, x: [usize; 3], width: usize, layers: usize, both: bool) -> Sizes {
        let dropout = if layers > 1 { 0.3 } else { 0.0 };
        let options = Recurrent { layers, bidirectional: both, dropout, training: true, batch_first: true };
        sizes(cell, (&x, dtype), width, options).unwrap()
    }

    /// What PyTorch 2.11 allocated on an H100 with cuDNN 9.19: the workspaces of both passes, and the reserve.
    #[test]
    fn sizes_and_algorithms_are_those_of_a_card() {
        let card = Profile::torch_2_11(90);
        for (sizes, workspaces, reserve) in [
            (new(Cell::Lstm, DType::F32, [4, 16, 64], 96, 1, false), [9_179_424; 2], 123_136),
            (new(Cell::Lstm, DType::F32, [4, 16, 64], 256, 1, false), [10_084_640; 2], 327_936),
            (new(Cell::Lstm, DType::F32, [8, 16, 64], 96, 2, true), [36_548_928; 2], 1_087_744),
            (new(Cell::Gru, DType::F32, [20, 35, 64], 256, 2, true), [49_772_960; 2], 18_726_656),
            (new(Cell::Lstm, DType::F16, [8, 16, 128], 256, 1, false), [11_063_616; 2], 327_936),
            (new(Cell::Lstm, DType::BF16, [8, 16, 128], 256, 1, false), [9_576_768; 2], 327_936),
            (new(Cell::Tanh, DType::F16, [8, 16, 128], 512, 1, false), [12_312_896; 2], 131_328),
            (new(Cell::Lstm, DType::F32, [20, 35, 650], 650, 1, false), [33_401_024; 2], 9_100_256),
        ] {
            let found = [true, false].map(|forward| sizes.workspace(algorithm(&sizes, &card, forward), true));
            assert_eq!((found, sizes.reserve()), (workspaces, reserve), "{sizes:?}");
        }
    }

    #[test]
    fn a_wide_state_has_the_small_algorithm_in_the_forward_pass_alone() {
        let card = Profile::torch_2_11(90);
        let chosen = |cell, width| {
            let sizes = new(cell, DType::F32, [4, 16, 64], width, 1, false);
            [true, false].map(|forward| algorithm(&sizes, &card, forward))
        };
        assert_eq!(chosen(Cell::Gru, 192), [Algorithm::Small, Algorithm::Standard]);
        assert_eq!(chosen(Cell::Gru, 193), [Algorithm::Standard; 2]);
        assert_eq!(chosen(Cell::Relu, 257), [Algorithm::Small, Algorithm::Standard]);
    }
}
