//! A rank's model and optimizer.

use std::sync::Arc;

use lab_base::error::Result;
use lab_models::{Architecture, Measured, Model, measured};
use memcore::Device;
use memcore::autograd::Leaf;
use memcore::nn::{Init, Module, Parameter, Sequential, Untrained};
use memcore::optim::Optimizer;

use super::broadcast::Tensors;
use super::optimizer::{Masters, Place, Sharded, Watched, master};
use super::reducer::{BUCKET_BYTES, Options, Reducer, groups};
use super::settings::{DataParallelSettings, Stage};
use super::tally::Tally;
use super::unit::{Gathered, Gathering, Kind, Unit};

/// Model and optimizer of a rank.
pub(super) struct Built {
    pub(super) model: Model,
    pub(super) optimizer: Box<dyn Optimizer>,
    /// Units of parameters; empty if every rank has everything.
    pub(super) units: Vec<Arc<Unit>>,
    /// The parameters of each piece of the network; empty unless they are divided.
    pub(super) gatherings: Vec<Option<Gathering>>,
    /// The buckets of gradients that every rank has whole; `None` for a single rank, and if they are divided.
    pub(super) reducer: Option<Arc<Reducer>>,
}

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

/// The parameters that have gradients.
pub(super) fn trained(parameters: &[Parameter]) -> Vec<Parameter> {
    parameters.iter().filter(|parameter| parameter.is_trained()).cloned().collect()
}

fn sharded(architecture: &dyn Architecture, kind: &Kind<'_>, settings: &DataParallelSettings) -> Result<Built> {
    let measured = measured(architecture)?;
    let unit_of = divided_together(architecture, &measured, kind);
    let groups = grouped(&measured, &unit_of);
    let of_group = |sizes: &Vec<usize>| {
        let unit = Unit::new(kind, sizes)?;
        // The unit is made whole, then cut before the next one is made.
        unit.gather()?;
        unit.release()?;
        Ok(Arc::new(unit))
    };
    let units: Vec<Arc<Unit>> = groups.iter().map(of_group).collect::<memcore::Result<_>>()?;
    let init = Init::new(kind.device, kind.dtype, settings.run.seed);
    let mut gatherings = Vec::new();
    let module = if kind.stage.divides_parameters() {
        let unit_of_piece = |piece: usize| {
            let own = measured.parameters.iter().position(|(of, _)| *of == piece);
            let ends = architecture.shares_ends() && piece + 1 == measured.pieces;
            own.map(|parameter| unit_of[parameter]).or_else(|| ends.then_some(0))
        };
        let of_piece: Vec<Option<usize>> = (0..measured.pieces).map(unit_of_piece).collect();
        gatherings = of_piece.iter().map(|unit| unit.map(|unit| Gathering(units[unit].clone()))).collect();
        gathering(architecture, &init, &units, &of_piece)?
    } else {
        let flats: memcore::Result<_> = units.iter().map(|unit| unit.values()).collect();
        architecture.build(&init.inside(flats?))?
    };
    let model = Model::made(module, &init, architecture.task());
    let places = places(&measured, &unit_of);
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
    let (optimizer, clip) = (settings.run.optimizer.build(shards)?, settings.run.clip_grad_norm);
    let optimizer = Sharded::new(optimizer, units.clone(), network, gathers, clip);
    Ok(Built { model, optimizer: Box::new(optimizer), units, gatherings, reducer: None })
}

/// Returns the unit of each parameter, in the order of their creation.
///
/// In general each piece of the network that has parameters is a unit. If the two ends share a parameter, and parameters are gathered and freed, both
/// ends are one unit, since what they share has to stay from the first to the last (PyTorch's FSDP wants tied parameters within one). If parameters
/// stay all the time and are not made piece by piece, units are a bucket's worth of parameters of one type, as they come.
fn divided_together(architecture: &dyn Architecture, measured: &Measured, kind: &Kind<'_>) -> Vec<usize> {
    let divides = kind.stage.divides_parameters();
    let as_they_come = architecture.indivisible().is_some() || !measured.in_order();
    if as_they_come && !divides {
        let bytes = measured.parameters.iter().map(|(_, values)| *values as u64 * kind.dtype.size());
        let buckets = groups(&bytes.collect::<Vec<_>>(), BUCKET_BYTES, BUCKET_BYTES).into_iter().enumerate();
        return buckets.flat_map(|(bucket, parameters)| parameters.map(move |_| bucket)).collect();
    }
    let ends = divides && architecture.shares_ends();
    let joined = |piece: usize| if ends && piece + 1 == measured.pieces { 0 } else { piece };
    let mut with_parameters: Vec<usize> = measured.parameters.iter().map(|(piece, _)| joined(*piece)).collect();
    let of_parameters = with_parameters.clone();
    with_parameters.sort_unstable();
    with_parameters.dedup();
    of_parameters.iter().map(|piece| with_parameters.partition_point(|other| other < piece)).collect()
}

/// The sizes of each unit's parameters.
fn grouped(measured: &Measured, unit_of: &[usize]) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new(); unit_of.iter().max().map_or(0, |last| last + 1)];
    for ((_, values), unit) in measured.parameters.iter().zip(unit_of) {
        groups[*unit].push(*values);
    }
    groups
}

/// The network as a chain of pieces, each of which gathers its unit's parameters before it is used.
fn gathering(
    architecture: &dyn Architecture,
    init: &Init,
    units: &[Arc<Unit>],
    of_piece: &[Option<usize>],
) -> memcore::Result<Box<dyn Module>> {
    let within: memcore::Result<Vec<Init>> = units.iter().map(|unit| Ok(init.inside(vec![unit.values()?]))).collect();
    let within = within?;
    let unit_of = |piece: usize| of_piece.get(piece).copied().flatten();
    let at = |piece: usize| unit_of(piece).and_then(|unit| within.get(unit)).unwrap_or(init).clone();
    let pieces = match architecture.indivisible() {
        None => architecture.pieces(&at)?,
        Some(_) => vec![architecture.build(&at(0))?],
    };
    let last = pieces.len().saturating_sub(1);
    let gathered = pieces.into_iter().enumerate().map(|(piece, inner)| {
        let Some(unit) = unit_of(piece).and_then(|unit| units.get(unit)) else { return inner };
        // The unit that both ends use stays gathered between them.
        let stays = architecture.shares_ends() && (piece == 0 || piece == last);
        Box::new(Gathered { inner, gathering: Gathering(unit.clone()), stays }) as Box<dyn Module>
    });
    Ok(Box::new(Sequential::of(gathered.collect())))
}

/// Unit and offset of each parameter.
fn places(measured: &Measured, unit_of: &[usize]) -> Vec<Place> {
    let mut filled = vec![0; measured.parameters.len()];
    let place = |((_, values), unit): (&(usize, usize), &usize)| {
        let offset = filled[*unit];
        filled[*unit] += values;
        Place { unit: *unit, offset }
    };
    measured.parameters.iter().zip(unit_of).map(place).collect()
}

/// Moves a gradient into its unit's bucket, and reduces the unit once all of its gradients are there.
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
        let measured = Measured { pieces: 3, parameters: vec![(0, 4), (2, 7), (0, 2)], copies: Vec::new() };
        let unit_of = [0, 1, 0];
        assert_eq!(grouped(&measured, &unit_of), [vec![4, 2], vec![7]]);
        let places = places(&measured, &unit_of);
        assert_eq!(places.iter().map(|p| (p.unit, p.offset)).collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 4)]);
    }
}
