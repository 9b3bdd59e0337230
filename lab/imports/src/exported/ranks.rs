//! An exported network in a step that is divided among ranks, whatever inputs it has and wherever its loss is computed.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_training::data_parallel::{DataParallelResult, DataParallelSettings, Rank, Share, train_each};
use lab_training::{Failed, Progress, ScriptStep, Source};
use memcore::Device;
use memcore::nn::Init;

use super::flat_weights;
use super::gathered::Pieces;
use super::model::Exported;
use super::step::{ExportedNetwork, check_source, scheduled};
use super::types;
use crate::on_rank::OnRank;

/// Trains the ranks that are shown, each on its device, as [`lab_training::data_parallel::train`] does.
///
/// # Errors
/// Trained parameters without a gradient, frozen ones that are to be divided, a data set that does not fit; those of the device.
pub fn train_ranks(
    model: &Exported,
    devices: &[Device],
    settings: &DataParallelSettings,
    source: &Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<DataParallelResult, Failed> {
    check(model, settings, source)?;
    if settings.stage.divides_parameters() {
        devices.iter().try_for_each(|device| check_divided(model, settings, device))?;
    }
    let rank = |number, device: &Device| {
        let divided =
            settings.stage.divides_parameters().then(|| Pieces::from_contents(model.contents(), model.again()));
        let network = match &divided {
            None => OnRank::new(model, Exported::network),
            Some(pieces) => OnRank::in_pieces(model, pieces.groups(), |at| {
                model.network_of(&at(0), &|tensor| at(pieces.group_of(tensor)))
            }),
        };
        let step = |Share { model: held, update, run, before_forward, gatherings }: Share| {
            let built = network.take()?;
            let parts = (held.parameters, held.buffers);
            let run = scheduled(model, &run)?;
            let gathered = divided.as_ref().map(|pieces| pieces.gathered(gatherings));
            let network = ExportedNetwork::around(model, device, built, parts, source.clone()).gathering(gathered);
            Ok(ScriptStep::new(network, update, run).after(before_forward))
        };
        Rank::with_step(&network, device, settings, number, step)
    };
    train_each(devices, settings, rank, progress)
}

fn check(model: &Exported, settings: &DataParallelSettings, source: &Source) -> Result<()> {
    if model.adversary().is_some() {
        return Err(Error::usage(
            "adversary",
            "two networks that are trained in turns are not divided among ranks here",
        ));
    }
    check_source(model, source)?;
    if let Some(unusual) = types::unusual(model) {
        return Err(Error::usage("data-parallel", format!("vramlab does not support it with {unusual}")));
    }
    match model.without_gradient() {
        Some(path) if settings.ranks > 1 || settings.stage.divides_parameters() => {
            let problem = format!(
                "the graph does not use the parameter {path}, which has requires_grad: DistributedDataParallel fails in the second step, unless \
                 find_unused_parameters=True, which is not supported; say {path}.requires_grad_(False) before the export"
            );
            Err(Error::usage("data-parallel", problem))
        }
        _ => Ok(()),
    }
}

/// Refuses parameters that are not divided among ranks here: frozen ones, and weights that PyTorch puts into one buffer.
fn check_divided(model: &Exported, settings: &DataParallelSettings, device: &Device) -> Result<()> {
    let tuned = settings.run.freeze.is_some() || settings.run.lora.is_some();
    let problem = if !model.trains_all() || tuned {
        "3: frozen parameters are not divided among ranks here; --zero 2 keeps them whole on each"
    } else if !flat_weights::modules(model.contents(), &Init::new(device, model.dtype(), 0)).is_empty() {
        "3: the weights of recurrent layers are in one buffer with cuDNN, which is not divided here; --zero 2 is supported"
    } else {
        return Ok(());
    };
    Err(Error::usage("zero", problem))
}
