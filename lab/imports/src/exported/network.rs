//! An exported network on a device: its tensors, and the graph as a module.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use memcore::memory::Category;
use memcore::nn::{Fill, Init, Module, Parameter};
use memcore::{Array, DType, Error, Result, Tensor, context};

use super::adapted_weight::AdaptedWeight;
use super::archive;
use super::contents::Contents;
use super::flat_weights;
use super::gathered::Gathered;
use super::operators::{self, Property};
use super::program::Program;
use super::regions::Regions;
use super::run::{Runner, Spare};
use super::signature::{InputKind, StateKind, StateTensor};
use super::transfer::transfer_order;
use super::value::Value;

/// The network on a device.
pub(super) struct Network {
    runner: Runner,
    program: Arc<Program>,
    /// The graph under `model.eval()`, with the place of each of its inputs among [`inputs`](Self::inputs); `None` where the training's is taken.
    evaluation: Option<(Arc<Program>, Vec<Option<usize>>)>,
    /// Inputs of the graph: each is a tensor or number of the network, or the index of a user's input.
    inputs: Vec<Held>,
    /// Index of the output from which the loss is computed.
    output: usize,
}

enum Held {
    Tensor(Tensor),
    /// The weight of a linear layer with an adapter.
    Adapted(Arc<AdaptedWeight>),
    /// A constant without dimensions, as `torch.tensor(2)` makes it in a program. PyTorch keeps it on the host.
    Number(Value),
    User(usize),
    Nothing,
}

impl Network {
    /// Makes the network's tensors in the order in which `model.to(device)` moves them, each through the `Init` that `at` returns for its number, and reads
    /// their values if the device computes.
    ///
    /// # Errors
    /// Operators that the device does not compute; values that the file does not have or that cannot be read; those of the device.
    pub(super) fn new(
        model: &Contents,
        regions: Arc<Regions>,
        output: usize,
        init: &Init,
        at: &dyn Fn(usize) -> Init,
    ) -> Result<Self> {
        refuse_predicted(model, init.device().computes())?;
        let state = &model.signature.state;
        let mut made: Vec<Option<Tensor>> = vec![None; state.len()];
        let mut flat = flat_weights::modules(model, init);
        let layers = model.linear_layers();
        let mut adapted: HashMap<usize, Arc<AdaptedWeight>> = HashMap::new();
        for number in made_in_order(state, &model.moved_before) {
            match flat.iter_mut().find(|module| module.has(number)) {
                Some(module) => {
                    let weights = module.moves(number, model, init)?;
                    weights.into_iter().for_each(|(number, weight)| made[number] = Some(weight));
                }
                None => made[number] = Some(make(&state[number], &at(number), model)?),
            }
            if let Some((weight, tensor)) =
                layers.get(&number).and_then(|weight| Some((*weight, made[*weight].as_ref()?)))
            {
                let made = AdaptedWeight::beside(&at(weight), &state[weight].path, tensor)?;
                adapted.extend(made.map(|made| (weight, Arc::new(made))));
            }
        }
        let held = |kind: &InputKind| match kind {
            InputKind::User(number) => Ok(Held::User(*number)),
            InputKind::Nothing => Ok(Held::Nothing),
            InputKind::State(number) if is_number(&state[*number]) => {
                number_of(&state[*number], init.device().computes(), &model.path).map(Held::Number)
            }
            InputKind::State(number) => {
                let number = state[*number].same_as.unwrap_or(*number);
                if let Some(weight) = adapted.get(&number) {
                    return Ok(Held::Adapted(weight.clone()));
                }
                let tensor = made.get(number).cloned().flatten();
                tensor.map(Held::Tensor).ok_or_else(|| Error::invalid("weights", "a shared tensor is missing"))
            }
        };
        let typed = init.dtype() == model.dtype;
        Ok(Self {
            runner: Runner {
                device: init.device().clone(),
                file: model.file.as_str().into(),
                typed,
                own: model.dtype,
                evaluates: false,
                regions,
                spare: Spare::default(),
            },
            program: model.program.clone(),
            evaluation: match &model.evaluation {
                Some(Ok(evaluation)) => Some((evaluation.program.clone(), evaluation.inputs.clone())),
                _ => None,
            },
            inputs: model.signature.inputs.iter().map(held).collect::<Result<_>>()?,
            output,
        })
    }

    /// Runs the graph on these inputs and returns its outputs; `None` for an output that is not a tensor. `evaluates`: as under `model.eval()`; `gathered`:
    /// the parameters that ranks gather piece by piece.
    ///
    /// # Errors
    /// What an operator cannot do, with the place in the user's program; those of the device.
    pub(super) fn outputs(
        &self,
        users: &[Tensor],
        evaluates: bool,
        gathered: Option<&Gathered>,
    ) -> Result<Vec<Option<Tensor>>> {
        let value = |held: &Held| match held {
            Held::Tensor(tensor) => Value::Tensor(tensor.clone()),
            Held::Adapted(weight) => Value::Adapted(weight.clone()),
            Held::User(number) => users.get(*number).map_or(Value::None, |tensor| Value::Tensor(tensor.clone())),
            Held::Number(number) => number.clone(),
            Held::Nothing => Value::None,
        };
        let typed = self.runner.typed && memcore::autograd::autocast_dtype().is_none();
        let values = match self.evaluation.as_ref().filter(|_| evaluates) {
            Some((program, places)) => {
                let inputs = places.iter().map(|place| place.map_or(Value::None, |place| value(&self.inputs[place])));
                let runner = Runner { typed, regions: Arc::default(), ..self.runner.clone() };
                runner.run(program, inputs.collect())?
            }
            None => {
                let runner = Runner { typed, evaluates, ..self.runner.clone() };
                let inputs = self.inputs.iter().map(value).collect();
                match gathered {
                    Some(gathered) => runner.run_gathering(&self.program, inputs, gathered)?,
                    None => runner.run(&self.program, inputs)?,
                }
            }
        };
        let tensor = |value: Value| if let Value::Tensor(tensor) = value { Some(tensor) } else { None };
        Ok(values.into_iter().map(tensor).collect())
    }
}

/// The module takes one input and returns the output from which the loss is computed.
impl Module for Network {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let outputs = self.outputs(std::slice::from_ref(x), false, None)?;
        let output = outputs.into_iter().nth(self.output).flatten();
        output.ok_or_else(|| Error::invalid("outputs", "the network gives no tensor"))
    }
}

/// Refuses operators that no backend computes, on a device that does.
pub(super) fn refuse_predicted(model: &Contents, computes: bool) -> Result<()> {
    let evaluated = model.evaluation.as_ref().and_then(|evaluation| evaluation.as_ref().ok());
    let programs = std::iter::once(&model.program).chain(evaluated.map(|evaluation| &evaluation.program));
    let mut found = programs.filter_map(|program| program.first(&|name| operators::has(name, Property::PredictedOnly)));
    match found.next().filter(|_| computes) {
        Some((target, place)) => {
            let what = format!("{}: {target} in {place}", model.file);
            Err(Error::invalid(what, "is predicted only: no backend computes it"))
        }
        None => Ok(()),
    }
}

/// The numbers of the tensors that are on a device, in the order in which `model.to(device)` moves them.
pub(super) fn made_in_order(state: &[StateTensor], moved_before: &[(String, String)]) -> impl Iterator<Item = usize> {
    let of = |tensor: &StateTensor| matches!(tensor.kind, StateKind::Parameter { .. });
    let tensors: Vec<(&str, bool)> = state.iter().map(|tensor| (tensor.path.as_str(), of(tensor))).collect();
    let is_one = |number: &usize| state[*number].same_as.is_none() && !is_number(&state[*number]);
    transfer_order(&tensors, moved_before).into_iter().filter(is_one)
}

/// Makes a tensor of the network on the device, with its values if the device computes.
pub(super) fn make(tensor: &StateTensor, init: &Init, model: &Contents) -> Result<Tensor> {
    let (module, name) = tensor.path.rsplit_once('.').unwrap_or(("", &tensor.path));
    let init = init.at(module);
    let dtype = model.in_run(tensor.dtype, init.dtype());
    let made = match tensor.kind {
        StateKind::Parameter { trained: true } => {
            init.of_type(dtype).parameter(name, &tensor.dims, Fill::Constant(0.0))?.tensor().clone()
        }
        StateKind::Parameter { trained: false } => {
            let _scope = context::scope(init.scope());
            let array = init.constant(&tensor.dims, dtype, |_| Ok(()))?;
            Tensor::from_array(array.with_category(Category::Parameter))
        }
        StateKind::Buffer | StateKind::Constant => Tensor::from_array(init.buffer(name, &tensor.dims, dtype, 0.0)?),
    };
    if init.device().computes() {
        fill(tensor, made.array(), &model.path)?;
    }
    Ok(made)
}

/// True for a constant without dimensions: the program made it without a device.
pub(super) fn is_number(tensor: &StateTensor) -> bool {
    tensor.kind == StateKind::Constant && tensor.dims.is_empty()
}

/// Returns the value of such a constant; 0 if the device does not compute.
pub(super) fn number_of(tensor: &StateTensor, computes: bool, path: &Path) -> Result<Value> {
    let value = if computes {
        let bytes = bytes_of(tensor, path)?;
        let missing = || Error::invalid(tensor.path.clone(), "the file has no value for it");
        memcore::array::decoded(&bytes, tensor.dtype).first().copied().ok_or_else(missing)?
    } else {
        0.0
    };
    Ok(match tensor.dtype {
        DType::Bool => Value::Bool(value != 0.0),
        dtype if dtype.is_float() => Value::Float(value),
        _ => Value::Int(value as i64),
    })
}

/// Reads the values of a tensor: one at a time is in main memory.
fn fill(tensor: &StateTensor, array: &Array, path: &Path) -> Result<()> {
    let bytes = bytes_of(tensor, path)?;
    if tensor.dtype == array.dtype() {
        return array.write_bytes(&bytes);
    }
    array.write_values(&memcore::array::decoded(&bytes, tensor.dtype))
}

fn bytes_of(tensor: &StateTensor, path: &Path) -> Result<Vec<u8>> {
    let Some(extent) = tensor.values else {
        let problem =
            "the file has no values for it (an export on the device meta has none): it can be predicted, not trained";
        return Err(Error::invalid(tensor.path.clone(), problem));
    };
    archive::read(path, extent).map_err(|error| Error::invalid(tensor.path.clone(), error.to_string()))
}

/// The parameters in the order of `model.parameters()`: that of the file.
pub(super) fn parameter_order(state: &[StateTensor], mut parameters: Vec<Parameter>) -> Vec<Parameter> {
    let places: HashMap<&str, usize> =
        state.iter().enumerate().rev().map(|(place, tensor)| (tensor.path.as_str(), place)).collect();
    parameters.sort_by_cached_key(|parameter| places.get(parameter.path()).copied().unwrap_or(usize::MAX));
    parameters
}

/// The type of most of the trained parameters' elements, float32 where there are none; another one, where there are several. Complex ones do not
/// count: they keep their type beside float32.
pub(super) fn parameter_types(state: &[StateTensor]) -> (DType, Option<DType>) {
    let trained = state.iter().filter(|tensor| tensor.kind == StateKind::Parameter { trained: true });
    let mut types: Vec<(DType, usize)> = Vec::new();
    for tensor in trained.filter(|tensor| !tensor.dtype.is_complex() && tensor.same_as.is_none()) {
        let elements: usize = tensor.dims.iter().fold(1, |all, dim| all.saturating_mul(*dim));
        match types.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype) {
            Some((_, count)) => *count = count.saturating_add(elements),
            None => types.push((tensor.dtype, elements)),
        }
    }
    // Of equally many the first.
    let first = types.iter().rev().max_by_key(|(_, count)| *count).map_or(DType::F32, |(dtype, _)| *dtype);
    (first, types.into_iter().map(|(dtype, _)| dtype).find(|dtype| *dtype != first))
}
