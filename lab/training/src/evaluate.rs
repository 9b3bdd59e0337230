//! Accuracy of a model on test data.

use lab_base::error::Result;
use lab_models::{Input, Loss, Model, Task};
use memcore::{Device, NoGrad, Tensor};
use serde::Serialize;

use super::settings::RunSettings;
use super::source::{Batch, from_dataset};
use crate::data::{Dataset, Split};

/// Accuracy: a number of correct examples, out of a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Accuracy {
    /// Examples classified correctly.
    pub right: usize,
    /// Examples classified.
    pub of: usize,
}

impl Accuracy {
    /// Accuracy as a share from 0 to 1.
    pub fn share(self) -> f64 {
        self.right as f64 / self.of.max(1) as f64
    }
}

/// Counts the examples of a split that the model classifies correctly; `None` for an empty split.
///
/// # Errors
/// Those of the device; data that do not fit.
pub fn evaluate(
    model: &Model,
    device: &Device,
    data: &Dataset,
    split: Split,
    settings: &RunSettings,
) -> Result<Option<Accuracy>> {
    model.training.set(false);
    let accuracy = evaluate_with(&model.task, data, split, settings.batch, |batch| {
        Ok(model.module.forward(&batch.upload_inputs(device, settings.precision.dtype())?)?)
    });
    model.training.set(true);
    accuracy
}

/// The same as [`evaluate`], for any function that returns logits for a batch. It must not train meanwhile.
///
/// # Errors
/// Those of `logits`; data that do not fit.
pub fn evaluate_with(
    task: &Task,
    data: &Dataset,
    split: Split,
    batch: usize,
    mut logits: impl FnMut(&Batch) -> Result<Tensor>,
) -> Result<Option<Accuracy>> {
    let (Loss::CrossEntropy { classes }, Input::Values(_)) = (&task.loss, &task.input) else {
        return Ok(None);
    };
    let examples = data.split(split);
    if examples.is_empty() {
        return Ok(None);
    }
    let _no_grad = NoGrad::new();
    let mut accuracy = Accuracy { right: 0, of: 0 };
    for indices in examples.chunks(batch.max(1)) {
        let batch = from_dataset(data, task, indices)?;
        let logits = logits(&batch)?.array().to_f64()?;
        for (row, &class) in logits.chunks(*classes).zip(batch.classes()) {
            let best = row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best });
            accuracy.right += usize::from(best as i64 == class);
            accuracy.of += 1;
        }
    }
    Ok(Some(accuracy))
}
