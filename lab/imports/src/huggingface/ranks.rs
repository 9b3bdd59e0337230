//! A network of transformers in a step that is divided among ranks.

use std::ops::ControlFlow;

use lab_base::error::Result;
use lab_training::data_parallel::{self, DataParallelResult, DataParallelSettings, Rank, Share, train_each};
use lab_training::{Failed, Progress, RunSettings, Schedule, ScriptStep, Source};
use memcore::Device;

use super::Pretrained;
use super::prepared::Prepared;
use super::trainer::{Keep, PretrainedNetwork, schedule};
use crate::on_rank::OnRank;

/// Trains the ranks that are shown, each on its device, as [`data_parallel::train`] does. A rank makes the call that one device makes, with the network's own
/// loss, and holds what `keep` says of its result. Where parameters are divided (ZeRO-3) the network is a chain of pieces with a loss behind it: only that loss
/// is held.
///
/// # Errors
/// Settings that cannot work; those of the devices.
pub fn train_ranks(
    model: &Pretrained,
    devices: &[Device],
    settings: &DataParallelSettings,
    source: &Source,
    keep: Keep,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<DataParallelResult, Failed> {
    if settings.stage.divides_parameters() {
        let run = RunSettings { schedule: Schedule::keeping_the_loss(), ..settings.run.clone() };
        return data_parallel::train(
            model,
            devices,
            &DataParallelSettings { run, ..settings.clone() },
            source,
            progress,
        );
    }
    let rank = |number, device: &Device| {
        let network = OnRank::new(model, Pretrained::network);
        let step = |Share { model: held, update, run, before_forward, .. }: Share| {
            let run = RunSettings { schedule: schedule(&run)?, ..run };
            let parts = (held.parameters, held.training, &update);
            let prepared = Prepared::around(model, device, network.take()?, parts, &run, source.clone());
            Ok(ScriptStep::new(PretrainedNetwork::new(prepared, keep), update, run).after(before_forward))
        };
        Rank::with_step(&network, device, settings, number, step)
    };
    train_each(devices, settings, rank, progress)
}
