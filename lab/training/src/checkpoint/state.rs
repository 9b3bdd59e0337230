//! What belongs to a run's state, the names of its parts, and how another run loads it.

use std::collections::{BTreeMap, BTreeSet};

use lab_base::error::Result;
use memcore::nn::{Copied, Parameter};
use memcore::{Array, Device};

use super::format::{HostTensor, StateFile, TrainingState};
use crate::schedule::Phase;
use crate::settings::RunSettings;
use crate::source::Source;
use crate::update::Update;

/// Value of the key `vramlab` in the files that this program writes.
const SCHEMA: &str = "vramlab-checkpoint-1";

/// Key of the memory profile of the run that wrote the file. It does not affect values: a run under another profile may continue from the file.
pub const PROFILE_KEY: &str = "profile";

/// Everything in a run that its future depends on.
pub struct Parts<'a> {
    /// Devices whose random generators draw, in the order of the network. The loss is on the last one.
    pub devices: Vec<&'a Device>,
    /// Parameters, in the optimizer's order.
    pub parameters: &'a [Parameter],
    /// Parameters that two devices have. The optimizer keeps the states of the copies after those of all parameters.
    pub copies: &'a [Copied],
    /// Buffers, such as running statistics, with their paths.
    pub buffers: &'a [(String, Array)],
    /// Optimizer and loss scaler.
    pub update: &'a mut Update,
    /// Settings of the run.
    pub settings: &'a RunSettings,
    /// Source of its batches.
    pub data: String,
}

/// Name of a data source in a file.
pub fn data_name(source: &Source) -> String {
    match source {
        Source::Synthetic { .. } | Source::Renewed { .. } => "synthetic".into(),
        Source::Dataset { data, .. } => data.name().into(),
    }
}

fn optimizer_name(index: usize, name: &str) -> String {
    format!("optimizer.{index}.{name}")
}

fn scaler_name(name: &str) -> String {
    format!("scaler.{name}")
}

/// Key of the random state of a device.
fn random_name(device: usize) -> String {
    if device == 0 { "random".into() } else { format!("random.{device}") }
}

fn gradient_name(parameter: &Parameter) -> String {
    format!("gradient.{}", parameter.path())
}

/// A step counter as PyTorch keeps it: a float32 scalar, exact up to 2²⁴ steps.
fn counter(steps: i32) -> HostTensor {
    HostTensor { dtype: memcore::DType::F32, dims: Vec::new(), bytes: (steps as f32).to_le_bytes().to_vec() }
}

fn on_host(array: &Array) -> Result<HostTensor> {
    Ok(HostTensor { dtype: array.dtype(), dims: array.dims().to_vec(), bytes: array.to_bytes()? })
}

impl Parts<'_> {
    /// Parameters and buffers, with their names.
    fn tensors(&self) -> impl Iterator<Item = (String, &Array)> {
        let parameters = self.parameters.iter().map(|parameter| (parameter.path().to_string(), parameter.array()));
        parameters.chain(self.buffers.iter().map(|(path, array)| (path.clone(), array)))
    }

    /// Whether gradients outlive a step, which they do only if the program never clears them.
    fn keeps_gradients(&self) -> bool {
        !self.settings.schedule.names(Phase::ZeroGrad)
    }

    /// Copies the whole state to the host, after `steps` steps.
    pub(super) fn state(&self, steps: usize) -> Result<TrainingState> {
        let mut tensors = BTreeMap::new();
        for (name, array) in self.tensors() {
            tensors.insert(name, on_host(array)?);
        }
        for index in 0..self.parameters.len() {
            let Some(state) = self.update.optimizer().and_then(|optimizer| optimizer.state(index)) else { continue };
            for (name, array) in &state.tensors {
                tensors.insert(optimizer_name(index, name), on_host(array)?);
            }
            tensors.extend(state.steps.map(|steps| (optimizer_name(index, "step"), counter(steps))));
        }
        for (name, array) in self.update.scaler().and_then(|scaler| scaler.state()).iter().flatten() {
            tensors.insert(scaler_name(name), on_host(array)?);
        }
        for parameter in self.parameters.iter().filter(|_| self.keeps_gradients()) {
            if let Some(grad) = parameter.grad() {
                tensors.insert(gradient_name(parameter), on_host(&grad)?);
            }
        }
        let mut metadata = self.must_agree();
        metadata.retain(|_, value| !value.is_empty());
        metadata.extend(self.devices.first().map(|device| (PROFILE_KEY.to_string(), device.profile().name.clone())));
        for (number, device) in self.devices.iter().enumerate() {
            let (key, offset) = device.random_state();
            metadata.insert(random_name(number), format!("{key},{offset}"));
        }
        metadata.extend([
            ("format".to_string(), "pt".to_string()),
            ("vramlab".into(), SCHEMA.into()),
            ("step".into(), steps.to_string()),
            ("lr".into(), self.settings.optimizer.lr.to_string()),
        ]);
        Ok(TrainingState { metadata, tensors })
    }

    /// Settings that a run must share with the one that it continues: without them the optimizer's state and the position in the data mean nothing.
    /// An empty one is not written.
    fn must_agree(&self) -> BTreeMap<String, String> {
        let run = self.settings;
        let optimizer = &run.optimizer;
        let list = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<String>>().join(",");
        let entries = [
            ("optimizer", optimizer.kind.name().to_string()),
            ("nesterov", optimizer.nesterov.to_string()),
            ("amsgrad", optimizer.amsgrad.to_string()),
            ("maximize", optimizer.maximize.to_string()),
            ("precision", run.precision.name().to_string()),
            ("batch", run.batch.to_string()),
            ("batches", list(&run.turns.batches)),
            ("lengths", list(&run.turns.lengths)),
            ("accumulate", run.accumulate.to_string()),
            ("seed", run.seed.to_string()),
            ("data", self.data.clone()),
        ];
        entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }

    /// Loads the weights of a file, which must have exactly this network's tensors.
    ///
    /// # Errors
    /// [`Error::Usage`](lab_base::Error::Usage) naming the first tensor that is missing, of another type or size, or unknown; those of the device.
    pub(super) fn load(&self, file: &StateFile<'_>) -> Result<()> {
        let mut known = BTreeSet::new();
        let mut all = Vec::new();
        for (name, array) in self.tensors() {
            all.push((array, file.bytes(&name, array.dtype(), array.dims())?));
            known.insert(name);
        }
        let ours = file.metadata.contains_key("vramlab");
        let beside =
            |name: &str| ours && ["optimizer.", "scaler.", "gradient."].iter().any(|prefix| name.starts_with(prefix));
        if let Some(name) = file.names().into_iter().find(|name| !known.contains(*name) && !beside(name)) {
            return Err(file.wrong(format!("tensor {name:?}: this model has none of that name")));
        }
        for Copied { copy, .. } in self.copies {
            all.push((copy.array(), file.bytes(copy.path(), copy.array().dtype(), copy.array().dims())?));
        }
        all.into_iter().try_for_each(|(array, bytes)| write(array, bytes))
    }

    /// Continues the run that wrote the file. Returns the number of the next step.
    ///
    /// # Errors
    /// [`Error::Usage`](lab_base::Error::Usage) for a file that no run wrote, or one with another optimizer, precision or position in the data; those
    /// of [`load`](Self::load).
    pub(super) fn resume(&mut self, file: &StateFile<'_>) -> Result<usize> {
        let said = |key: &str| file.metadata.get(key).map_or("", String::as_str);
        if said("vramlab") != SCHEMA {
            let problem = "it has no state of a run: its metadata lack \"vramlab\": ";
            return Err(file.wrong(format!("{problem}{SCHEMA:?}; --load takes weights alone")));
        }
        for (key, here) in self.must_agree() {
            if said(&key) != here {
                let there = said(&key);
                return Err(file
                    .wrong(format!("{key} was {there:?} there and is {here:?} here; --load takes the weights alone")));
            }
        }
        let unreadable = |key: &str| file.wrong(format!("metadata: {key}: {:?} is not a number", said(key)));
        let step: usize = said("step").parse().map_err(|_| unreadable("step"))?;
        // A device that the earlier run did not have draws the same numbers as the first one.
        let own = |number: usize| Some(random_name(number)).filter(|name| file.metadata.contains_key(name));
        let random = |number: usize| {
            let name = own(number).unwrap_or_else(|| random_name(0));
            let numbers = said(&name).split_once(',').and_then(|(key, n)| Some((key.parse().ok()?, n.parse().ok()?)));
            numbers.ok_or_else(|| unreadable(&name))
        };
        let random: Vec<(u64, u64)> = (0..self.devices.len()).map(random).collect::<Result<_>>()?;
        self.load(file)?;
        let mut known = self.resume_optimizer(file)?;
        let of_the_loss = self.devices.last().filter(|_| file.has(&scaler_name("scale")));
        if let (Some(scaler), Some(device)) = (self.update.scaler_mut(), of_the_loss) {
            for (name, array) in scaler.make_state(device)? {
                let name = scaler_name(name);
                write(&array, file.bytes(&name, array.dtype(), array.dims())?)?;
                known.insert(name);
            }
        }
        for parameter in self.parameters.iter().filter(|parameter| file.has(&gradient_name(parameter))) {
            let (name, like) = (gradient_name(parameter), parameter.array());
            let grad = Array::empty_as(like.device(), like.dims(), like.dtype(), memcore::memory::Category::Gradient)?;
            write(&grad, file.bytes(&name, like.dtype(), like.dims())?)?;
            parameter.tensor().set_grad(Some(grad));
            known.insert(name);
        }
        let state = |name: &&str| ["optimizer.", "scaler.", "gradient."].iter().any(|prefix| name.starts_with(prefix));
        let weights: BTreeSet<String> = self.tensors().map(|(name, _)| name).collect();
        let unknown = |name: &&str| !known.contains(*name) && !weights.contains(*name);
        if let Some(name) = file.names().into_iter().filter(state).find(unknown) {
            return Err(file.wrong(format!("tensor {name:?}: this run keeps nothing of that name")));
        }
        self.devices.iter().zip(random).for_each(|(device, state)| device.set_random_state(state));
        Ok(step)
    }

    /// Loads the optimizer's state. Returns the names that were read.
    fn resume_optimizer(&mut self, file: &StateFile<'_>) -> Result<BTreeSet<String>> {
        let mut known = BTreeSet::new();
        let prefix = |name: &str| name.strip_prefix("optimizer.")?.split_once('.')?.0.parse::<usize>().ok();
        let with_state: BTreeSet<usize> = file.names().into_iter().filter_map(prefix).collect();
        for index in with_state.into_iter().filter(|index| *index < self.parameters.len()) {
            let Some(optimizer) = self.update.optimizer_mut() else { continue };
            let name = optimizer_name(index, "step");
            let steps = match file.has(&name) {
                true => {
                    let bytes = file.bytes(&name, memcore::DType::F32, &[])?;
                    known.insert(name);
                    bytes.first_chunk().map_or(0.0, |bytes| f32::from_le_bytes(*bytes)) as i32
                }
                false => 0,
            };
            let path = self.parameters[index].path();
            let same = |(_, copied): &(usize, &Copied)| copied.original.path() == path;
            let copies = self.copies.iter().enumerate().filter(same).map(|(copy, _)| self.parameters.len() + copy);
            for own in std::iter::once(index).chain(copies) {
                let Some(state) = optimizer.make_state(own, steps)? else { continue };
                if state.steps.is_some() && !known.contains(&optimizer_name(index, "step")) {
                    return Err(file.wrong(format!("no tensor {:?}", optimizer_name(index, "step"))));
                }
                for (name, array) in &state.tensors {
                    let name = optimizer_name(index, name);
                    write(array, file.bytes(&name, array.dtype(), array.dims())?)?;
                    known.insert(name);
                }
            }
        }
        Ok(known)
    }
}

/// Writes values to a device; does nothing on one without values.
fn write(array: &Array, bytes: &[u8]) -> Result<()> {
    if array.device().computes() { Ok(array.write_bytes(bytes)?) } else { Ok(()) }
}
