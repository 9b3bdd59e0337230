//! Weights of recurrent networks in one buffer: `nn.LSTM`, `nn.GRU` and `nn.RNN` put them there for cuDNN when they have been moved to a card
//! (`flatten_parameters` in `torch/nn/modules/rnn.py`). The module of an exported program does not.

use memcore::memory::Category;
use memcore::nn::{Fill, Init};
use memcore::ops::FlatWeights;
use memcore::profile::Convolution;
use memcore::{Array, DType, Result, Tensor, context};

use super::contents::Contents;
use super::signature::{StateKind, StateTensor};

/// The weights of one recurrent module.
pub(super) struct FlatModule {
    /// Their numbers, in order.
    members: Vec<usize>,
    places: FlatWeights,
    /// Those that have been moved to the device.
    moved: Vec<Array>,
}

/// The modules of a network whose weights PyTorch puts into one buffer on this device: those with the names of weights that recurrent modules have.
pub(super) fn modules(model: &Contents, init: &Init) -> Vec<FlatModule> {
    let device = init.device();
    let has_cudnn = matches!(device.profile().convolution, Convolution::Cudnn { .. });
    if !model.flattens || !has_cudnn || device.computes() || init.converts() {
        return Vec::new();
    }
    let state = &model.signature.state;
    let mut modules: Vec<(&str, Vec<usize>)> = Vec::new();
    for (number, tensor) in state.iter().enumerate() {
        if !matches!(tensor.kind, StateKind::Parameter { .. }) {
            continue;
        }
        let module = tensor.path.rsplit_once('.').map_or("", |(module, _)| module);
        match modules.iter_mut().find(|(known, _)| *known == module) {
            Some((_, members)) => members.push(number),
            None => modules.push((module, vec![number])),
        }
    }
    let of_run = |number: usize| model.in_run(state[number].dtype, init.dtype());
    modules.into_iter().filter_map(|(_, members)| FlatModule::from_state(state, members, &of_run)).collect()
}

impl FlatModule {
    /// `None` if this is not a recurrent module, or one whose weights stay where they are: in types that are not `CUDNN_TENSOR_DTYPES` in
    /// `torch/backends/cudnn`, and tied ones.
    fn from_state(state: &[StateTensor], members: Vec<usize>, of_run: &dyn Fn(usize) -> DType) -> Option<Self> {
        let kinds: Option<Vec<&str>> = members.iter().map(|number| kind_of(&state[*number].path)).collect();
        let has_biases = kinds?.contains(&"bias_ih");
        let flat = |number: &usize| matches!(of_run(*number), DType::F64 | DType::F32 | DType::F16);
        let alike = members.iter().all(|number| of_run(*number) == of_run(members[0]));
        let tied = state.iter().enumerate().any(|(number, tensor)| {
            tensor.same_as.is_some_and(|first| members.contains(&first))
                || members.contains(&number) && tensor.same_as.is_some()
        });
        if !alike || tied || !members.iter().all(flat) {
            return None;
        }
        let dims: Vec<&[usize]> = members.iter().map(|number| state[*number].dims.as_slice()).collect();
        let places = FlatWeights::from_dims(&dims, has_biases)?;
        Some(Self { members, places, moved: Vec::new() })
    }

    /// True for a weight of this module.
    pub(super) fn has(&self, number: usize) -> bool {
        self.members.contains(&number)
    }

    /// Moves the next weight to the device. After the last one all are copied into the buffer, and those that were moved are freed: returns the weights with
    /// their numbers.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn moves(&mut self, number: usize, model: &Contents, init: &Init) -> Result<Vec<(usize, Tensor)>> {
        let state = &model.signature.state;
        let tensor = &state[number];
        let (module, _) = tensor.path.rsplit_once('.').unwrap_or_default();
        let init = init.at(module).of_type(model.in_run(tensor.dtype, init.dtype()));
        let _scope = context::scope(init.scope());
        let moved = {
            let _op = context::op("to>_to_copy");
            Array::empty_as(init.device(), &tensor.dims, init.dtype(), Category::Parameter)?
        };
        self.moved.push(moved);
        if self.moved.len() < self.members.len() {
            return Ok(Vec::new());
        }
        let buffer = {
            let _op = context::op("_cudnn_rnn_flatten_weight>zeros");
            Array::empty_as(init.device(), &[self.places.elements], init.dtype(), Category::Parameter)?
        };
        let mut made = Vec::new();
        for (number, start) in self.members.iter().zip(&self.places.starts) {
            let StateTensor { path, dims, kind, .. } = &state[*number];
            let name = path.rsplit_once('.').map_or(path.as_str(), |(_, name)| name);
            let part = buffer.narrow(0, *start, dims.iter().product())?;
            let weight = match kind {
                StateKind::Parameter { trained: true } => {
                    init.inside(vec![part]).parameter(name, dims, Fill::Constant(0.0))?.tensor().clone()
                }
                _ => Tensor::from_array(part.view(dims)?),
            };
            made.push((*number, weight));
        }
        let _op = context::op("_cudnn_rnn_flatten_weight");
        self.moved.drain(..).for_each(drop);
        Ok(made)
    }
}

/// The kind of a weight of `nn.LSTM`, `nn.GRU` and `nn.RNN` by its name, such as `weight_ih_l0_reverse`; `None` for another name, and for projections.
fn kind_of(path: &str) -> Option<&str> {
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    let (kind, layer) = name.rsplit_once("_l")?;
    let layer = layer.strip_suffix("_reverse").unwrap_or(layer);
    let is_layer = !layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit());
    (is_layer && ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].contains(&kind)).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_recurrent_modules_are_told_by_their_names() {
        assert_eq!(kind_of("encoder.rnn.weight_ih_l12"), Some("weight_ih"));
        assert_eq!(kind_of("bias_hh_l0_reverse"), Some("bias_hh"));
        for other in
            ["rnn.weight_ih", "rnn.weight_hr_l0", "rnn.weight_ih_l", "rnn.weight_ih_lx", "rnn.weight_ih_l0_back"]
        {
            assert_eq!(kind_of(other), None, "{other}");
        }
    }
}
