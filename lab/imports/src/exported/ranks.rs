//! An exported network in a step that is divided among ranks, whatever inputs it has and wherever its loss is computed.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_training::data_parallel::{DataParallelResult, DataParallelSettings, Rank, Share, Stage, train_each};
use lab_training::{Failed, Progress, ScriptStep, Source};
use memcore::Device;

use super::model::Exported;
use super::step::{ExportedNetwork, check_source, scheduled};
use super::types;
use crate::on_rank::OnRank;

/// Trains the ranks that are shown, each on its device, as [`lab_training::data_parallel::train`] does.
///
/// # Errors
/// Parameters divided among ranks (ZeRO-3), trained parameters without a gradient, a data set that does not fit; those of the device.
pub fn train_ranks(
    model: &Exported,
    devices: &[Device],
    settings: &DataParallelSettings,
    source: &Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<DataParallelResult, Failed> {
    check(model, settings, source)?;
    let rank = |number, device: &Device| {
        let network = OnRank::new(model, Exported::network);
        let step = |Share { model: held, update, run, before_forward }: Share| {
            let built = network.take()?;
            let parts = (held.parameters, held.buffers);
            let run = scheduled(model, &run)?;
            let network = ExportedNetwork::around(model, device, built, parts, source.clone());
            Ok(ScriptStep::new(network, update, run).after(before_forward))
        };
        Rank::of(&network, device, settings, number, step)
    };
    train_each(devices, settings, rank, progress)
}

fn check(model: &Exported, settings: &DataParallelSettings, source: &Source) -> Result<()> {
    if settings.stage == Stage::Parameters {
        let problem = "3: the graph of a model.pt2 is not cut into parts that are gathered one after the other; 0, 1 and 2 are represented";
        return Err(Error::usage("zero", problem));
    }
    if model.adversary().is_some() {
        return Err(Error::usage(
            "adversary",
            "two networks that are trained in turns are not divided among ranks here",
        ));
    }
    check_source(model, source)?;
    if let Some(unusual) = types::unusual(model) {
        return Err(Error::usage("data-parallel", format!("it is not represented with {unusual}")));
    }
    match model.without_gradient() {
        Some(path) if settings.ranks > 1 => {
            let problem = format!(
                "the graph does not use the parameter {path}, which has requires_grad: DistributedDataParallel fails in the second step, unless \
                 find_unused_parameters=True, which is not represented; say {path}.requires_grad_(False) before the export"
            );
            Err(Error::usage("data-parallel", problem))
        }
        _ => Ok(()),
    }
}
