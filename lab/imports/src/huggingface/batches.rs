//! Makes the batches of a network.

use lab_base::error::Result;
use lab_models::{Architecture, Input, Task};
use lab_training::{Batch, RunSettings, Source};
use memcore::{DType, Device, Tensor, context};

use super::Pretrained;
use super::ending::Ending;
use super::inputs::Inputs;
use super::mask::{attention_mask, positions_of_texts};
use super::options::AttentionMask;

/// Makes batches on a device. On a device that computes nothing, only the sizes are real.
pub(super) struct Batches {
    device: Device,
    source: Source,
    task: Task,
    ending: Ending,
    mask: AttentionMask,
    /// Texts of an example, one after the other.
    texts: Option<usize>,
    settings: RunSettings,
}

impl Batches {
    pub(crate) fn new(model: &Pretrained, device: &Device, settings: &RunSettings, source: Source) -> Self {
        Self {
            device: device.clone(),
            source,
            task: model.task(),
            ending: model.ending(),
            mask: model.options().attention_mask,
            texts: model.options().packing,
            settings: settings.clone(),
        }
    }

    /// Returns the source of the data.
    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the task of the network.
    pub(super) fn task(&self) -> &Task {
        &self.task
    }

    /// Makes a batch of so many examples. Its labels are made first, or last.
    pub(super) fn make(&self, examples: usize, number: usize, labels_first: bool) -> Result<Inputs> {
        let _op = context::op("to>_to_copy");
        let data = self.on_host(examples, number)?;
        let first = labels_first.then(|| self.labels(&data, examples, number)).transpose()?;
        let input = data.upload_inputs(&self.device, self.dtype())?;
        let attention_mask = attention_mask(self.mask, &input)?;
        let labels = first.map_or_else(|| self.labels(&data, examples, number), Ok)?;
        let positions = self.texts.map(|texts| positions_of_texts(&input, texts)).transpose()?;
        Ok(Inputs { input, attention_mask, labels, items: None, positions })
    }

    /// Copies given examples to the device, each with its class.
    pub(super) fn upload(&self, batch: &Batch) -> Result<Inputs> {
        let input = batch.upload_inputs(&self.device, self.dtype())?;
        let labels = vec![batch.upload_targets(&self.device, self.dtype())?];
        Ok(Inputs { input, attention_mask: None, labels, items: None, positions: None })
    }

    fn dtype(&self) -> DType {
        self.settings.precision.dtype()
    }

    fn on_host(&self, examples: usize, number: usize) -> Result<Batch> {
        let rows = examples * self.ending.rows_per_example();
        self.source.batch(&self.settings.task(&self.task, number), rows, number, self.device.computes())
    }

    /// Makes the labels of the head, or else the targets of the data.
    fn labels(&self, data: &Batch, examples: usize, number: usize) -> Result<Vec<Tensor>> {
        let task = self.settings.task(&self.task, number);
        let length = if let Input::Tokens { length, .. } = task.input { length } else { 1 };
        let seed = self.settings.seed.wrapping_add(number as u64);
        match self.ending.labels(&self.device, self.dtype(), examples, length, seed)? {
            Some(labels) => Ok(labels),
            None => Ok(vec![data.upload_targets(&self.device, self.dtype())?]),
        }
    }
}
