//! Sources of batches.

use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_models::{Input, Loss, Task};
use memcore::memory::Category;
use memcore::{Array, DType, Device, Tensor};

use crate::data::Split;
use crate::data::{Dataset, SplitMix64};

/// Host data of one step.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    inputs: Values,
    input_dims: Vec<usize>,
    targets: Values,
    target_dims: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Values {
    Floats(Vec<f32>),
    Indices(Vec<i64>),
}

impl Default for Values {
    fn default() -> Self {
        Values::Floats(Vec::new())
    }
}

/// Source of batches.
#[derive(Clone)]
pub enum Source {
    /// The same random batch in every step, as in the articles' programs: uniform values, random classes or tokens. If the targets follow from the
    /// tokens, every step has other tokens.
    Synthetic {
        /// Seed of the values.
        seed: u64,
    },
    /// A new random batch in every step, with tokens as their own labels: networks of the `transformers` library are trained on it here.
    Renewed {
        /// Seed of the values.
        seed: u64,
    },
    /// Examples of a data set, in an order drawn anew for each epoch.
    Dataset {
        /// The examples.
        data: Arc<Dataset>,
        /// Seed of the order.
        seed: u64,
    },
}

impl Source {
    /// Returns the batch of step `step`: `batch` examples for `task`. Without `values` (for a device that computes nothing) it has sizes only.
    ///
    /// # Errors
    /// [`Error::Usage`] if the data do not fit the task.
    pub fn batch(&self, task: &Task, batch: usize, step: usize, values: bool) -> Result<Batch> {
        match self {
            Source::Synthetic { seed } => Ok(match task.loss {
                Loss::Reversal { .. } => reversal(task, batch, seed.wrapping_add((step as u64) << 8), values),
                _ => synthetic(task, batch, *seed, values),
            }),
            Source::Renewed { seed } => Ok(renewed(task, batch, seed.wrapping_add(step as u64), values)),
            Source::Dataset { data, seed } => {
                let indices = epoch_indices(data, *seed, batch, step)?;
                from_dataset(data, task, &indices)
            }
        }
    }
}

/// Returns the examples of step `step`: whole batches of each epoch's order; a smaller last one is left out.
fn epoch_indices(data: &Dataset, seed: u64, batch: usize, step: usize) -> Result<Vec<usize>> {
    let per_epoch = data.split(Split::Train).len() / batch;
    if per_epoch == 0 {
        let n = data.split(Split::Train).len();
        return Err(Error::usage(
            "batch",
            format!("{batch} is more than the {n} training examples of {}", data.name()),
        ));
    }
    let order = data.epoch_order(Split::Train, seed, (step / per_epoch) as u64);
    let start = step % per_epoch * batch;
    Ok(order[start..start + batch].to_vec())
}

/// Gathers these examples as a batch for `task`.
///
/// # Errors
/// [`Error::Usage`] if the data do not fit the task.
pub(super) fn from_dataset(data: &Dataset, task: &Task, indices: &[usize]) -> Result<Batch> {
    let Input::Values(dims) = &task.input else {
        return Err(Error::usage("data", format!("{} holds values, the model wants tokens", data.name())));
    };
    let Loss::CrossEntropy { classes } = task.loss else {
        let problem = format!("{} holds classes, and the model's loss does not compare with classes", data.name());
        return Err(Error::usage("data", problem));
    };
    let (have, want) = (data.input_dims().iter().product::<usize>(), dims.iter().product::<usize>());
    if have != want || data.n_classes() > classes {
        let problem = format!(
            "{} has examples of {:?} in {} classes, the model wants {dims:?} in {classes}",
            data.name(),
            data.input_dims(),
            data.n_classes()
        );
        return Err(Error::usage("data", problem));
    }
    let (inputs, targets) = data.batch(indices).map_err(|e| Error::usage("data", e.to_string()))?;
    Ok(Batch {
        inputs: Values::Floats(inputs),
        input_dims: with_batch(indices.len(), dims),
        targets: Values::Indices(targets),
        target_dims: vec![indices.len()],
    })
}

fn with_batch(batch: usize, dims: &[usize]) -> Vec<usize> {
    std::iter::once(batch).chain(dims.iter().copied()).collect()
}

/// Makes values or tokens, with classes or the same tokens as targets.
fn renewed(task: &Task, batch: usize, seed: u64, values: bool) -> Batch {
    let mut data = synthetic(task, batch, seed, values);
    let drawn = |dims: &[usize], classes: usize| indices(dims, classes, seed, values);
    if let Input::Tokens { vocabulary, .. } = &task.input {
        data.inputs = drawn(&data.input_dims, *vocabulary);
    }
    if let Loss::CrossEntropy { classes } | Loss::NextToken { classes } = &task.loss {
        data.targets = drawn(&data.target_dims, *classes);
    }
    data
}

fn synthetic(task: &Task, batch: usize, seed: u64, values: bool) -> Batch {
    let mut generator = SplitMix64::new(seed);
    let mut floats = |dims: &[usize]| {
        let n = if values { dims.iter().product() } else { 0 };
        Values::Floats((0..n).map(|_| 2.0 * generator.next_f32() - 1.0).collect())
    };
    let (input_dims, inputs) = match &task.input {
        Input::Values(dims) => {
            let dims = with_batch(batch, dims);
            let values = floats(&dims);
            (dims, values)
        }
        Input::Tokens { length, vocabulary } => {
            let dims = vec![batch, *length];
            (dims.clone(), indices(&dims, *vocabulary, seed ^ 1, values))
        }
    };
    let (target_dims, targets) = match &task.loss {
        Loss::MeanSquaredError { dims } => {
            let dims = with_batch(batch, dims);
            let values = floats(&dims);
            (dims, values)
        }
        Loss::Inside => (vec![0], Values::default()),
        Loss::CrossEntropy { classes } | Loss::NextToken { classes } | Loss::Reversal { classes } => {
            // One class per example, or one per token.
            let dims = match &task.input {
                Input::Values(_) => vec![batch],
                Input::Tokens { .. } => input_dims.clone(),
            };
            (dims.clone(), indices(&dims, *classes, seed ^ 2, values))
        }
    };
    Batch { inputs, input_dims, targets, target_dims }
}

/// Makes random tokens, with each example's tokens in reverse as targets.
fn reversal(task: &Task, batch: usize, seed: u64, values: bool) -> Batch {
    let mut data = synthetic(task, batch, seed, values);
    if let (Values::Indices(tokens), &[_, length]) = (&data.inputs, &data.input_dims[..]) {
        let backwards = tokens.chunks(length.max(1)).flat_map(|example| example.iter().rev().copied());
        data.targets = Values::Indices(backwards.collect());
    }
    data
}

fn indices(dims: &[usize], below: usize, seed: u64, values: bool) -> Values {
    let mut generator = SplitMix64::new(seed);
    let n = if values { dims.iter().product() } else { 0 };
    Values::Indices((0..n).map(|_| generator.below(below.max(1) as u64) as i64).collect())
}

impl Batch {
    /// Copies the inputs to a device; floats in the model's type.
    pub fn upload_inputs(&self, device: &Device, dtype: DType) -> Result<Tensor> {
        self.inputs.upload(device, &self.input_dims, dtype)
    }

    /// Copies the targets to a device; floats in the model's type.
    pub fn upload_targets(&self, device: &Device, dtype: DType) -> Result<Tensor> {
        self.targets.upload(device, &self.target_dims, dtype)
    }

    /// Class of each row, if the targets are classes.
    pub fn classes(&self) -> &[i64] {
        match &self.targets {
            Values::Indices(classes) => classes,
            Values::Floats(_) => &[],
        }
    }
}

impl Values {
    fn upload(&self, device: &Device, dims: &[usize], dtype: DType) -> Result<Tensor> {
        let dtype = if matches!(self, Values::Indices(_)) { DType::I64 } else { dtype };
        let array = Array::empty_as(device, dims, dtype, Category::Input)?;
        if device.computes() {
            match self {
                Values::Indices(indices) => array.write(indices)?,
                Values::Floats(values) => memcore::nn::write_f32(&array, values)?,
            }
        }
        Ok(Tensor::from_array(array))
    }
}
