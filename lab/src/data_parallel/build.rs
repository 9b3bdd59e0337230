//! A rank's model and optimizer.

use std::sync::Arc;

use memcore::Device;
use memcore::autograd::Leaf;
use memcore::nn::{Init, Module, Parameter, Sequential};
use memcore::optim::Optimizer;

use super::optimizer::{Masters, Place, Sharded, Watched, master};
use super::reducer::{BUCKET_BYTES, Options, Reducer, Replica, groups};
use super::settings::{DataParallelSettings, Stage};
use super::tally::Tally;
use super::unit::{Gathered, Kind, Unit};
use crate::error::Result;
use crate::models::{Architecture, Model, values_by_piece};

/// What a rank trains.
pub(super) struct Built {
    pub(super) model: Model,
    pub(super) optimizer: Box<dyn Optimizer>,
    /// Empty where every rank has everything.
    pub(super) units: Vec<Arc<Unit>>,
}

/// Builds what rank `rank` has.
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
            let (rank, ranks, dtype) = (rank as u64, settings.ranks as u64, settings.run.precision.dtype());
            sharded(architecture, &Kind { device, dtype, stage, rank, ranks, tally }, settings)?
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
    let mut model = Model::build(architecture, device, run.precision.dtype(), run.seed)?;
    let optimizer: Box<dyn Optimizer> = if settings.master_weights {
        let copies: memcore::Result<Vec<Parameter>> =
            model.parameters.iter().map(|parameter| master(parameter.path(), parameter.array())).collect();
        Box::new(Masters::new(run.optimizer.build(copies?)?, model.parameters.clone()))
    } else {
        run.optimizer.build(model.parameters.clone())?
    };
    // A rank without others has nothing to reduce: that is the program as it was.
    if settings.ranks > 1 {
        let gradient_as_bucket_view = settings.gradient_as_bucket_view;
        let options = Options { gradient_as_bucket_view, passes: run.accumulate };
        let reducer = Reducer::new(device, &model.parameters, options, tally)?;
        model.module = Box::new(Replica { inner: model.module, reducer });
    }
    Ok(Built { model, optimizer, units: Vec::new() })
}

fn sharded(architecture: &dyn Architecture, kind: &Kind<'_>, settings: &DataParallelSettings) -> Result<Built> {
    let groups = divided_together(architecture, kind)?;
    let of_group = |sizes: &Vec<usize>| {
        if sizes.is_empty() {
            return Ok(None);
        }
        let unit = Unit::new(kind, sizes)?;
        // It is made whole and then cut, before the next one is made.
        unit.gather()?;
        unit.release()?;
        Ok(Some(Arc::new(unit)))
    };
    let by_group: Vec<Option<Arc<Unit>>> = groups.iter().map(of_group).collect::<memcore::Result<_>>()?;
    let init = Init::new(kind.device, kind.dtype, settings.run.seed);
    let module = if kind.stage.divides_parameters() {
        gathering(architecture, &init, &by_group)?
    } else {
        let flats: memcore::Result<_> = by_group.iter().flatten().map(|unit| unit.values()).collect();
        architecture.build(&init.inside(flats?))?
    };
    let model = Model::made(module, &init, architecture.task());
    let units: Vec<Arc<Unit>> = by_group.into_iter().flatten().collect();
    let places = places(&groups);
    if kind.stage.divides_gradients() {
        for (parameter, place) in model.parameters.iter().zip(&places) {
            let (unit, offset) = (units[place.unit].clone(), place.offset);
            let hook = Box::new(move |leaf: &Leaf| reduce_when_complete(&unit, offset, leaf));
            parameter.tensor().register_post_accumulate_grad_hook(hook)?;
        }
    }
    let own = |(number, unit): (usize, &Arc<Unit>)| {
        let path = format!("shard.{number}");
        if settings.master_weights { master(&path, &unit.shard) } else { Ok(Parameter::new(path, unit.shard.clone())) }
    };
    let shards: Vec<Parameter> = units.iter().enumerate().map(own).collect::<memcore::Result<_>>()?;
    let network = (model.parameters.clone(), places);
    let gathers = !kind.stage.divides_parameters();
    let optimizer = Sharded::new(settings.run.optimizer.build(shards)?, units.clone(), network, gathers);
    Ok(Built { model, optimizer: Box::new(optimizer), units })
}

/// Sizes of the parameters of each unit: a piece of the network each. Where that is no chain of pieces, and its parameters are there all the time,
/// parameters of one type as they come, a bucket's worth each.
fn divided_together(architecture: &dyn Architecture, kind: &Kind<'_>) -> Result<Vec<Vec<usize>>> {
    let pieces = values_by_piece(architecture)?;
    if architecture.indivisible().is_none() || kind.stage.divides_parameters() {
        return Ok(pieces);
    }
    let sizes: Vec<usize> = pieces.into_iter().flatten().collect();
    let bytes: Vec<u64> = sizes.iter().map(|size| *size as u64 * kind.dtype.size()).collect();
    Ok(groups(&bytes, BUCKET_BYTES, BUCKET_BYTES).into_iter().map(|group| sizes[group].to_vec()).collect())
}

/// The network as a chain of pieces, each of which gathers its parameters when it is used.
fn gathering(
    architecture: &dyn Architecture,
    init: &Init,
    units: &[Option<Arc<Unit>>],
) -> memcore::Result<Box<dyn Module>> {
    let within = |unit: &Option<Arc<Unit>>| match unit {
        Some(unit) => Ok(init.inside(vec![unit.values()?])),
        None => Ok(init.clone()),
    };
    let inits: Vec<Init> = units.iter().map(within).collect::<memcore::Result<_>>()?;
    let at = |piece: usize| inits.get(piece).unwrap_or(init).clone();
    let pieces = match architecture.indivisible() {
        None => architecture.pieces(&at)?,
        Some(_) => vec![architecture.build(&at(0))?],
    };
    let gathered = pieces.into_iter().zip(units).map(|(inner, unit)| match unit {
        Some(unit) => Box::new(Gathered { inner, unit: unit.clone() }) as Box<dyn Module>,
        None => inner,
    });
    Ok(Box::new(Sequential::of(gathered.collect())))
}

/// Where each parameter lies; groups without parameters are no units.
fn places(groups: &[Vec<usize>]) -> Vec<Place> {
    let mut places = Vec::new();
    for (unit, sizes) in groups.iter().filter(|sizes| !sizes.is_empty()).enumerate() {
        let mut offset = 0;
        for size in sizes {
            places.push(Place { unit, offset });
            offset += size;
        }
    }
    places
}

/// What is done with a gradient that is reduced as soon as its unit's are all there.
fn reduce_when_complete(unit: &Unit, offset: usize, leaf: &Leaf) -> memcore::Result<()> {
    let Some(gradient) = leaf.grad() else { return Ok(()) };
    unit.collect(offset, &gradient)?;
    drop(gradient);
    leaf.set_grad(None);
    if unit.is_complete() {
        unit.reduce()?;
        unit.release()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_lie_one_behind_the_other() {
        let places = places(&[vec![4, 2], vec![], vec![7]]);
        assert_eq!(places.iter().map(|p| (p.unit, p.offset)).collect::<Vec<_>>(), [(0, 0), (0, 4), (1, 0)]);
    }
}
