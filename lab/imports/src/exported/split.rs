//! An exported network split over devices. A stage runs some of the graph's nodes, as a submodule of `torch.fx.passes.split_module` does:
//!
//! ```python
//! given = [value.to(device) for value in taken]; del values that no later stage takes; made = submodule(*given)
//! ```

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_models::Architecture;
use lab_training::pipeline::{self, Built, PipelineResult, PipelineSettings, Stage, Staged};
use lab_training::{Begin, Continuation, Failed, Progress, Source};
use memcore::amp::Autocast;
use memcore::nn::{Copied, Init};
use memcore::storage::Storage;
use memcore::{Array, Device, Tensor, context, ops};

use super::batches::{self, Wanted};
use super::contents::Contents;
use super::inputs::Division;
use super::model::Exported;
use super::network::{is_number, made_in_order, make, number_of, refuse_predicted};
use super::program::Slot;
use super::run::{Runner, Spare, results};
use super::signature::{InputKind, StateKind, StateTensor};
use super::stages::{Part, Parts};
use super::step::check_source;
use super::types;
use super::value::Value;

/// Values of a micro-batch between stages, by slot.
type Held = HashMap<Slot, Value>;

/// An exported network on its devices, with its script's variables.
pub(super) struct Split<'a> {
    model: &'a Exported,
    source: Source,
    stages: Vec<OnDevice>,
    /// For each input, its slot, its division into micro-batches, and its device.
    inputs: Vec<(Slot, Division, Device)>,
    loaded: Vec<Tensor>,
    target: Option<Tensor>,
    /// By micro-batch.
    held: Vec<Held>,
    /// By micro-batch.
    losses: Vec<Option<Tensor>>,
}

/// What a stage runs on its device.
struct OnDevice {
    part: Part,
    runner: Runner,
    state: State,
}

/// What a stage uses of the network.
#[derive(Default)]
struct State {
    /// Tensors and numbers, by slot.
    values: Vec<(Slot, Value)>,
    /// Those tensors that other devices have, too, with their paths.
    shared: Vec<(String, Array)>,
}

/// A tensor that a stage was given: a copy of one on another device.
struct Crossed {
    slot: Slot,
    source: Arc<Storage>,
    copy: Tensor,
    version: u32,
}

/// Tensors of the network on the devices that use them.
struct Tensors {
    /// By number and stage.
    made: HashMap<(usize, usize), Tensor>,
    /// Paths of buffers that several devices have.
    copied_buffers: Vec<String>,
}

/// Puts a network on devices.
fn build<'a>(
    model: &'a Exported,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
    begin: Begin<'_>,
) -> Result<Built<Split<'a>>> {
    let contents = model.contents();
    let Some(first) = devices.first() else { return Err(Error::usage("devices", "one device at least is needed")) };
    refuse_predicted(contents, first.computes())?;
    let parts = Parts::cut(contents, &settings.cut, devices.len(), model.again(), model.loss.output)?;
    let inputs = inputs(model, &parts, devices, settings.micro_batches)?;
    let init = Init::new(first, settings.run.precision.dtype(), settings.run.seed);
    let tensors = tensors(contents, &parts.holders, devices, &init)?;
    if let (Some(path), Begin::Resume(_) | Begin::Weights(_)) = (tensors.copied_buffers.first(), begin) {
        let problem = format!("the buffer {path} is on several devices, and the weights of a file are loaded to one");
        return Err(Error::usage("devices", problem));
    }
    let parameters = model.optimizer_order(init.parameters());
    if parameters.is_empty() {
        return Err(Error::usage(&contents.file, "has no parameters that are trained (requires_grad)"));
    }
    let copies: Vec<Copied> = init.copies();
    let all = || parameters.iter().chain(copies.iter().map(|copied| &copied.copy));
    let stage =
        |(device, part): (&Device, &Part)| Stage::new(device, part.pieces.clone(), Some(part.modules.clone()), all());
    let stages = devices.iter().zip(&parts.all).map(stage).collect();
    let typed = init.dtype() == contents.dtype && settings.run.precision.autocast().is_none();
    let on_device = |(number, part): (usize, Part)| {
        let device = devices[number].clone();
        let file = contents.file.as_str().into();
        let (regions, spare) = (model.again().clone(), Spare::default());
        let own = contents.dtype;
        let runner = Runner { device, file, typed, own, evaluates: false, regions, spare };
        let state = used(contents, &parts.holders, &tensors, number, first.computes())?;
        Ok(OnDevice { part, runner, state })
    };
    let network = Split {
        model,
        source,
        stages: parts.all.into_iter().enumerate().map(on_device).collect::<Result<_>>()?,
        inputs,
        loaded: Vec::new(),
        target: None,
        held: (0..settings.micro_batches).map(|_| Held::new()).collect(),
        losses: (0..settings.micro_batches).map(|_| None).collect(),
    };
    Ok(Built { stages, parameters, copies, buffers: init.buffers(), network })
}

/// The inputs of a network, each with its division and the device of the stage that uses it first.
///
/// # Errors
/// Micro-batches of an input whose batch is not known.
fn inputs(
    model: &Exported,
    parts: &Parts,
    devices: &[Device],
    micro_batches: usize,
) -> Result<Vec<(Slot, Division, Device)>> {
    let Contents { program, signature, .. } = model.contents();
    let users = program.inputs.iter().zip(&signature.inputs).filter(|(_, kind)| matches!(kind, InputKind::User(_)));
    let mut found = Vec::new();
    for (((slot, _), input), stage) in users.zip(model.inputs()).zip(&parts.first_use) {
        let division = input.division(model.sizes());
        if micro_batches > 1 && division == Division::Unknown {
            let problem = format!("the file does not say which size of the input {} is the batch", input.name);
            return Err(Error::usage("micro-batches", problem));
        }
        found.push((*slot, division, devices[*stage].clone()));
    }
    Ok(found)
}

/// Makes the tensors of a network in the order in which `model.to(device)` moves them, each on the devices of the stages that use it.
fn tensors(contents: &Contents, holders: &[Vec<usize>], devices: &[Device], init: &Init) -> Result<Tensors> {
    let mut found = Tensors { made: HashMap::new(), copied_buffers: Vec::new() };
    for number in made_in_order(&contents.signature.state, &contents.moved_before) {
        let tensor = &contents.signature.state[number];
        let Some((first, others)) = holders[number].split_first() else { continue };
        let original = make(tensor, &init.on(&devices[*first]), contents)?;
        for stage in others {
            let copy = copied(tensor, &original, &init.on(&devices[*stage]))?;
            found.made.insert((number, *stage), copy);
        }
        if !others.is_empty() && tensor.kind == StateKind::Buffer {
            found.copied_buffers.push(tensor.path.clone());
        }
        found.made.insert((number, *first), original);
    }
    Ok(found)
}

/// Copies a tensor of the network, which was made last, to the device of `init`.
fn copied(tensor: &StateTensor, original: &Tensor, init: &Init) -> Result<Tensor> {
    let (module, _) = tensor.path.rsplit_once('.').unwrap_or(("", &tensor.path));
    let init = init.at(module);
    if let (StateKind::Parameter { trained: true }, Some(parameter)) = (tensor.kind, init.parameters().last()) {
        return Ok(init.shared(parameter)?.tensor().clone());
    }
    let (_scope, _op) = (context::scope(init.scope()), context::op("to>_to_copy"));
    let category = original.array().storage().category();
    Ok(Tensor::from_array(original.array().to_device(init.device())?.with_category(category)))
}

/// What a stage uses of the network.
fn used(contents: &Contents, holders: &[Vec<usize>], tensors: &Tensors, stage: usize, computes: bool) -> Result<State> {
    let State { mut values, mut shared } = State::default();
    for (slot, kind) in contents.program.inputs.iter().zip(&contents.signature.inputs) {
        let InputKind::State(number) = kind else { continue };
        let tensor = &contents.signature.state[*number];
        if is_number(tensor) {
            values.push((*slot, number_of(tensor, computes, &contents.path)?));
            continue;
        }
        let number = tensor.same_as.unwrap_or(*number);
        let Some(here) = tensors.made.get(&(number, stage)) else { continue };
        if holders[number].len() > 1 {
            shared.push((tensor.path.clone(), here.array().clone()));
        }
        values.push((*slot, Value::Tensor(here.clone())));
    }
    Ok(State { values, shared })
}

impl Split<'_> {
    /// Moves what a stage takes to its device. Returns the values, and those of them that are copies.
    fn given(&mut self, settings: &PipelineSettings, stage: usize, micro: usize) -> Result<(Vec<Value>, Vec<Crossed>)> {
        let OnDevice { part, runner, state, .. } = &self.stages[stage];
        let (mut values, mut crossed) = (vec![Value::None; self.model.contents().program.names.len()], Vec::new());
        state.values.iter().for_each(|(slot, value)| values[*slot] = value.clone());
        for &slot in &part.takes {
            let input = self.inputs.iter().position(|(of, ..)| *of == slot);
            let value = match input.and_then(|number| Some((self.loaded.get(number)?, self.inputs[number].1))) {
                Some((whole, Division::Examples)) => Value::Tensor(settings.share(whole, micro)?),
                Some((whole, _)) => Value::Tensor(whole.clone()),
                None => self.held[micro].get(&slot).cloned().unwrap_or(Value::None),
            };
            values[slot] = match value {
                Value::Tensor(there) => {
                    let here = ops::to_device(&there, &runner.device)?;
                    let (source, version) = (there.array().storage(), here.array().storage().version());
                    if !Arc::ptr_eq(source, here.array().storage()) {
                        crossed.push(Crossed { slot, source: source.clone(), copy: here.clone(), version });
                    }
                    Value::Tensor(here)
                }
                other => other,
            };
        }
        Ok((values, crossed))
    }

    /// Refuses writes that only one of several devices would see.
    fn check_written(&self, stage: usize, micro: usize, crossed: &[Crossed], versions: &[u32]) -> Result<()> {
        let OnDevice { part, state: State { shared, .. }, .. } = &self.stages[stage];
        let refused = |name: &str, problem: &str| Err(Error::usage("devices", format!("{name} {problem}")));
        for ((path, array), version) in shared.iter().zip(versions) {
            if array.storage().version() != *version {
                return refused(path, "is on several devices, and one of them writes it; --cut elsewhere");
            }
        }
        for one in crossed.iter().filter(|one| one.copy.array().storage().version() != one.version) {
            let is_alias = |storage: &Arc<Storage>| Arc::ptr_eq(storage, &one.source);
            let held = self.held[micro].values().filter_map(|value| match value {
                Value::Tensor(tensor) => Some(tensor.array().storage()),
                _ => None,
            });
            let others = crossed.iter().filter(|other| other.slot != one.slot).map(|other| &other.source);
            if !part.ends.contains(&one.slot) || held.chain(others).any(is_alias) {
                let name = &self.model.contents().program.names[one.slot];
                return refused(
                    name,
                    "is used on several devices, and one of them writes it in place; --cut elsewhere",
                );
            }
        }
        Ok(())
    }

    /// Runs a stage. Returns what it makes of the network's results; what later stages take is held.
    fn run(&mut self, settings: &PipelineSettings, stage: usize, micro: usize) -> Result<Vec<Value>> {
        let (mut values, crossed) = self.given(settings, stage, micro)?;
        // The caller's list of arguments: Python frees it when the submodule returns.
        let arguments: Vec<Value> = self.stages[stage].part.takes.iter().map(|slot| values[*slot].clone()).collect();
        for slot in &self.stages[stage].part.ends {
            self.held[micro].remove(slot);
        }
        let OnDevice { part, runner, state: State { shared, .. } } = &self.stages[stage];
        let versions: Vec<u32> = shared.iter().map(|(_, array)| array.storage().version()).collect();
        let program = &self.model.contents().program;
        runner.part(program, part.nodes.clone(), &mut values)?;
        let made = results(program, &values);
        self.check_written(stage, micro, &crossed, &versions)?;
        for slot in &part.leaves {
            self.held[micro].insert(*slot, std::mem::replace(&mut values[*slot], Value::None));
        }
        drop(arguments);
        Ok(made)
    }
}

impl Staged for Split<'_> {
    /// Loads each input to the device of the first stage that uses it, and targets to the last.
    fn load(&mut self, settings: &PipelineSettings, number: usize) -> Result<()> {
        let Some(last) = self.stages.last().map(|stage| stage.runner.device.clone()) else { return Ok(()) };
        let _op = context::op("to>_to_copy");
        let wanted = Wanted { number, examples: settings.run.batch, calls: settings.micro_batches };
        let device_of = |input: usize| self.inputs[input].2.clone();
        let (inputs, target) = batches::inputs(self.model, &settings.run, &self.source, wanted, &device_of, &last)?;
        drop(std::mem::replace(&mut self.loaded, inputs));
        let target = match target {
            Some(target) => Some(target),
            None => batches::targets(self.model, &settings.run, &self.source, wanted, &last)?,
        };
        drop(std::mem::replace(&mut self.target, target));
        Ok(())
    }

    fn forward(&mut self, settings: &PipelineSettings, stage: usize, micro: usize) -> Result<()> {
        let _autocast = settings.run.precision.autocast().map(Autocast::new);
        let made = self.run(settings, stage, micro)?;
        if stage + 1 < self.stages.len() {
            return Ok(());
        }
        let Some(Value::Tensor(output)) = made.get(self.model.loss.output) else {
            return Err(Error::usage(&self.model.contents().file, "the output of the loss is not a tensor"));
        };
        let target = self.target.as_ref().map(|target| settings.share(target, micro)).transpose()?;
        let loss = self.model.loss.of_output(output, target.as_ref())?;
        self.losses[micro] = Some(settings.part_of_mean(loss)?);
        Ok(())
    }

    fn take_loss(&mut self, micro: usize) -> Result<Tensor> {
        let loss = self.losses[micro].take();
        loss.ok_or_else(|| Error::usage("schedule", "a pass ran before the one that it needs"))
    }

    fn data(&self) -> &Source {
        &self.source
    }
}

/// Trains a network over several devices, as [`pipeline::train_from`] does.
///
/// # Errors
/// Settings that cannot work, a cut that cannot be made, data that do not fit; those of the devices, with the losses until then.
pub fn train_split(
    model: &Exported,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PipelineResult, Failed> {
    devices.iter().try_for_each(|device| continuation.check(device))?;
    if model.adversary().is_some() {
        return Err(Error::usage("adversary", "two networks that are trained in turns are on one device here").into());
    }
    if let Some(unusual) = types::unusual(model) {
        return Err(Error::usage("devices", format!("{unusual}, are on one device here")).into());
    }
    check_source(model, &source)?;
    let begin = continuation.begin;
    let build = || build(model, devices, settings, source, begin);
    let trainer = pipeline::trainer_of(model, devices, settings, build)?;
    pipeline::run(trainer, continuation, progress)
}
