//! The batches that an exported network is trained on: its inputs, and the targets of a loss outside of it.

use lab_base::error::{Error, Result};
use lab_models::Architecture;
use lab_training::{RunSettings, Source};
use memcore::{DType, Device, Tensor};

use super::inputs::{Content, Input, filled};
use super::model::Exported;

/// A batch to load: its number, its examples, and how many calls of the network share it.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub number: usize,
    pub examples: usize,
    pub calls: usize,
}

/// Bit that makes the seed of the targets differ from the seed of the inputs.
const TARGETS: u64 = 1 << 32;

/// Makes the inputs of a batch, each on its device. A data set gives one input and also the targets, on their device; they are `None` otherwise.
///
/// # Errors
/// Sizes that do not fit; those of the devices.
pub(super) fn inputs(
    model: &Exported,
    run: &RunSettings,
    source: &Source,
    wanted: Wanted,
    device_of: &dyn Fn(usize) -> Device,
    targets_on: &Device,
) -> Result<(Vec<Tensor>, Option<Tensor>)> {
    let dtype = run.precision.dtype();
    let Some(seed) = seed(source, wanted.number) else {
        let device = device_of(0);
        let data = source.batch(&model.task(), wanted.examples, wanted.number, device.computes())?;
        let inputs = vec![run.in_format(data.upload_inputs(&device, dtype)?)?];
        return Ok((inputs, Some(data.upload_targets(targets_on, dtype)?)));
    };
    let input = |(i, input): (usize, &Input)| {
        let dtype = model.contents().in_run(input.dtype, dtype);
        let beyond = || Error::usage("batch", format!("{}: beyond 64 bits", wanted.examples));
        let dims = input.shared_dims(model.sizes(), wanted.examples, wanted.calls).ok_or_else(beyond)?;
        run.in_format(filled(&device_of(i), &dims, dtype, input.content, seed.wrapping_add(i as u64))?)
    };
    let inputs = model.inputs().iter().enumerate().map(input).collect::<Result<Vec<Tensor>>>()?;
    Ok((inputs, None))
}

/// Makes the targets of a loss outside the network; `None` if the loss takes none, or if a data set gives them.
///
/// # Errors
/// Those of the device.
pub(super) fn targets(
    model: &Exported,
    run: &RunSettings,
    source: &Source,
    wanted: Wanted,
    device: &Device,
) -> Result<Option<Tensor>> {
    let Some(dims) = model.loss.target_dims(wanted.examples) else { return Ok(None) };
    let Some(seed) = seed(source, wanted.number) else { return Ok(None) };
    let (dtype, content) = match model.loss.of_classes() {
        true => (DType::I64, Content::Below(model.loss.classes())),
        false => (run.precision.dtype(), Content::Floats),
    };
    Ok(Some(filled(device, &dims, dtype, content, seed ^ TARGETS)?))
}

/// The seed of a batch; `None` if a data set gives its values.
fn seed(source: &Source, number: usize) -> Option<u64> {
    match source {
        Source::Synthetic { seed } => Some(*seed),
        Source::Renewed { seed } => Some(seed.wrapping_add(number as u64)),
        Source::Dataset { .. } => None,
    }
}
