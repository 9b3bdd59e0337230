//! A rank's model and optimizer.

use std::sync::Arc;

use lab_base::error::Result;
use lab_models::{Architecture, Model};
use memcore::Device;
use memcore::nn::{Parameter, Untrained};
use memcore::optim::Optimizer;

use super::broadcast::Tensors;
use super::built::{Built, trained};
use super::optimizer::{Masters, Watched, master};
use super::reducer::{Options, Reducer};
use super::settings::{DataParallelSettings, Stage};
use super::sharded::sharded;
use super::tally::Tally;
use super::unit::Kind;

/// Builds the model and optimizer of rank `rank`.
///
/// # Errors
/// Settings that the optimizer does not have; those of the device.
pub(super) fn build(
    architecture: &dyn Architecture,
    device: &Device,
    settings: &DataParallelSettings,
    rank: usize,
    tally: &Arc<Tally>,
) -> Result<Built> {
    let built = match settings.stage {
        Stage::Replicated => replicated(architecture, device, settings, tally)?,
        stage => {
            let (rank, ranks) = (rank as u64, settings.ranks as u64);
            sharded(architecture, &Kind { device, stage, rank, ranks, tally }, settings)?
        }
    };
    let watched = Watched { optimizer: built.optimizer, device: device.clone(), tally: tally.clone() };
    Ok(Built { optimizer: Box::new(watched), ..built })
}

fn replicated(
    architecture: &dyn Architecture,
    device: &Device,
    settings: &DataParallelSettings,
    tally: &Arc<Tally>,
) -> Result<Built> {
    let run = &settings.run;
    let (module, init) = run.built(device, |init| architecture.build(init))?;
    let mut model = Model::made(module, &init, architecture.task());
    let Untrained { frozen, buffers } = init.untrained();
    let parameters = model.parameters.iter().map(|parameter| (parameter.array().numel(), parameter.array().dtype()));
    let tensors: Tensors = parameters.chain(frozen).chain(buffers.iter().copied()).collect();
    model.parameters = run.in_optimizer_order(architecture, std::mem::take(&mut model.parameters));
    run.check_tuned(&model.parameters)?;
    let trained = trained(&model.parameters);
    let optimizer: Box<dyn Optimizer> = if settings.master_weights {
        let copies: memcore::Result<Vec<Parameter>> =
            trained.iter().map(|parameter| master(parameter.path(), parameter.array())).collect();
        Box::new(Masters::new(run.optimizer.build(copies?)?, trained.clone()))
    } else {
        run.optimizer.build(model.parameters.clone())?
    };
    // A single rank has nothing to reduce and runs the program unchanged.
    let passes = if settings.sync_each { 1 } else { run.accumulate };
    let (gradient_as_bucket_view, ranks) = (settings.gradient_as_bucket_view, settings.ranks);
    let options = Options { gradient_as_bucket_view, passes, ranks, buffers };
    let reducer = (ranks > 1).then(|| Reducer::new(device, &trained, &tensors, options, tally)).transpose()?;
    Ok(Built { model, optimizer, units: Vec::new(), gatherings: Vec::new(), reducer })
}
