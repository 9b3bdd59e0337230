//! Parameters that are divided among ranks, and the network that computes with them.

use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Measured, MeasuredParameter, Model, measured};
use memcore::autograd::Leaf;
use memcore::memory::Category;
use memcore::nn::{Init, Module, Parameter, Sequential};
use memcore::{Array, DType};

use super::built::{Built, trained};
use super::optimizer::{Place, Sharded, master};
use super::reducer::{BUCKET_BYTES, groups};
use super::settings::DataParallelSettings;
use super::unit::{Gathered, Gathering, Kind, Unit};

/// Builds the network of a rank that has a shard of each unit of parameters. Frozen parameters have units of their own where parameters are divided, and are
/// whole on every rank otherwise: an optimizer has no states of them.
///
/// # Errors
/// Quantized weights; settings that the optimizer does not have; those of the device.
pub(super) fn sharded(
    architecture: &dyn Architecture,
    kind: &Kind<'_>,
    settings: &DataParallelSettings,
) -> Result<Built> {
    let run = &settings.run;
    if let Some(quantized) = &run.quantized {
        let problem = "with zero it is not supported; without --zero each rank has all weights in few bits";
        return Err(Error::usage(quantized.flag(), problem));
    }
    let measured = measured(architecture, run.precision.dtype(), |init| run.tuned(init))?;
    let plan = Plan::from_measured(&measured, &divided_together(architecture, &measured, kind), kind);
    let of_plan = |unit: &UnitPlan| {
        let unit = Unit::new(kind, unit.dtype, &unit.sizes)?;
        // The unit is made whole, then cut before the next one is made.
        unit.gather()?;
        unit.release()?;
        Ok(Arc::new(unit))
    };
    let units: Vec<Arc<Unit>> = plan.units.iter().map(of_plan).collect::<memcore::Result<_>>()?;
    let init = run.tuned(Init::new(kind.device, run.precision.dtype(), run.seed));
    let arrays = plan.arrays(&measured, &units, kind)?;
    let groups = plan.gatherings(&units);
    let mut gatherings = Vec::new();
    let module = if kind.stage.divides_parameters() {
        gatherings = plan.of_pieces(&groups, architecture.shares_ends());
        gathering(architecture, &init, (&measured, arrays), &gatherings)?
    } else {
        architecture.build(&init.inside(arrays))?
    };
    let model = Model::made(module, &init, architecture.task());
    run.check_tuned(&model.parameters)?;
    let own = trained(&model.parameters);
    let places: Vec<Place> =
        plan.places.iter().flatten().filter(|place| plan.units[place.unit].is_trained).copied().collect();
    if kind.stage.divides_gradients() {
        for (parameter, place) in own.iter().zip(&places) {
            let (unit, offset) = (units[place.unit].clone(), place.offset);
            let group = groups[plan.units[place.unit].group].clone();
            let hook = Box::new(move |leaf: &Leaf| reduce_when_complete(&unit, &group, offset, leaf));
            parameter.tensor().register_post_accumulate_grad_hook(hook)?;
        }
    }
    let updated: Vec<usize> = (0..units.len()).filter(|unit| plan.units[*unit].is_trained).collect();
    let shard = |(number, unit): (usize, &usize)| {
        let (path, values) = (format!("shard.{number}"), &units[*unit].shard);
        if settings.master_weights { master(&path, values) } else { Ok(Parameter::new(path, values.clone())) }
    };
    let shards: Vec<Parameter> = updated.iter().enumerate().map(shard).collect::<memcore::Result<_>>()?;
    let among = |place: Place| Place { unit: updated.partition_point(|unit| *unit < place.unit), ..place };
    let places: Vec<Place> = places.into_iter().map(among).collect();
    let gathers = !kind.stage.divides_parameters();
    let units: Vec<Arc<Unit>> = updated.into_iter().map(|unit| units[unit].clone()).collect();
    let optimizer =
        Sharded::new(run.optimizer.build(shards)?, units.clone(), (own, places), gathers, run.clip_grad_norm);
    Ok(Built { model, optimizer: Box::new(optimizer), units, gatherings, reducer: None })
}

/// A unit that is not made yet.
#[derive(Debug, PartialEq, Eq)]
struct UnitPlan {
    /// The parameters that are gathered and freed together.
    group: usize,
    is_trained: bool,
    dtype: DType,
    sizes: Vec<usize>,
}

/// Where each parameter lies.
struct Plan {
    units: Vec<UnitPlan>,
    /// In the order of creation; `None` for a parameter that every rank has whole.
    places: Vec<Option<Place>>,
    /// Group of each piece; `None` for one without parameters.
    group_of_piece: Vec<Option<usize>>,
}

impl Plan {
    /// Of each group, parameters of one type that are trained, or that are not, are a unit.
    fn from_measured(measured: &Measured, group_of: &[usize], kind: &Kind<'_>) -> Self {
        let is_divided = |parameter: &MeasuredParameter| parameter.is_trained || kind.stage.divides_parameters();
        let mut keys: Vec<(usize, bool, DType)> = Vec::new();
        let all = || measured.parameters.iter().zip(group_of);
        let key = |(parameter, group): (&MeasuredParameter, &usize)| (*group, parameter.is_trained, parameter.dtype);
        for pair in all().filter(|(parameter, _)| is_divided(parameter)) {
            if !keys.contains(&key(pair)) {
                keys.push(key(pair));
            }
        }
        keys.sort_by_key(|(group, ..)| *group);
        let unit = |(group, is_trained, dtype)| UnitPlan { group, is_trained, dtype, sizes: Vec::new() };
        let mut units: Vec<UnitPlan> = keys.iter().copied().map(unit).collect();
        let place = |pair: (&MeasuredParameter, &usize)| {
            let unit = keys.iter().position(|known| *known == key(pair)).filter(|_| is_divided(pair.0))?;
            let offset = units[unit].sizes.iter().sum();
            units[unit].sizes.push(pair.0.values);
            Some(Place { unit, offset })
        };
        let places = all().map(place).collect();
        let own = |piece: usize| all().find(|(parameter, _)| parameter.piece == piece).map(|(_, group)| *group);
        Self { units, places, group_of_piece: (0..measured.pieces).map(own).collect() }
    }

    /// The array that each parameter is a view of, in the order of creation.
    fn arrays(&self, measured: &Measured, units: &[Arc<Unit>], kind: &Kind<'_>) -> memcore::Result<Vec<Array>> {
        let array = |(parameter, place): (&MeasuredParameter, &Option<Place>)| match place {
            Some(place) => units[place.unit].values()?.narrow(0, place.offset, parameter.values),
            None => Array::empty_as(kind.device, &[parameter.values], parameter.dtype, Category::Parameter),
        };
        measured.parameters.iter().zip(&self.places).map(array).collect()
    }

    /// The units of each group.
    fn gatherings(&self, units: &[Arc<Unit>]) -> Vec<Gathering> {
        let groups = self.units.last().map_or(0, |unit| unit.group + 1);
        let of_group = |group: usize, is_trained: bool| {
            let of =
                self.units.iter().zip(units).filter(|(plan, _)| plan.group == group && plan.is_trained == is_trained);
            of.map(|(_, unit)| unit.clone()).collect()
        };
        (0..groups).map(|group| Gathering::new(of_group(group, true), of_group(group, false))).collect()
    }

    /// The units of each piece. If both ends share a parameter, what the first piece has is the last one's, too.
    fn of_pieces(&self, gatherings: &[Gathering], shares_ends: bool) -> Vec<Option<Gathering>> {
        let last = self.group_of_piece.len().saturating_sub(1);
        let group = |(piece, own): (usize, &Option<usize>)| own.or_else(|| (shares_ends && piece == last).then_some(0));
        let groups = self.group_of_piece.iter().enumerate().map(group);
        groups.map(|group| gatherings.get(group?).cloned()).collect()
    }
}

/// Returns the group of each parameter, in the order of their creation.
///
/// In general each piece of the network that has parameters is a group. If the two ends share a parameter, and parameters are gathered and freed, both
/// ends are one group, since what they share has to stay from the first to the last (PyTorch's FSDP wants tied parameters within one). If parameters
/// stay all the time and are not made piece by piece, groups are a bucket's worth of trained parameters, as they come.
fn divided_together(architecture: &dyn Architecture, measured: &Measured, kind: &Kind<'_>) -> Vec<usize> {
    let divides = kind.stage.divides_parameters();
    let as_they_come = architecture.indivisible().is_some() || !measured.in_order();
    let all = || measured.parameters.iter();
    if as_they_come && !divides {
        let bytes = |parameter: &MeasuredParameter| match parameter.is_trained {
            true => parameter.values as u64 * parameter.dtype.size(),
            false => 0,
        };
        let bytes: Vec<u64> = all().map(bytes).collect();
        let buckets = groups(&bytes, BUCKET_BYTES, BUCKET_BYTES).into_iter().enumerate();
        return buckets.flat_map(|(bucket, parameters)| parameters.map(move |_| bucket)).collect();
    }
    let ends = divides && architecture.shares_ends();
    let joined = |piece: usize| if ends && piece + 1 == measured.pieces { 0 } else { piece };
    let of_parameters: Vec<usize> = all().map(|parameter| joined(parameter.piece)).collect();
    let mut with_parameters = of_parameters.clone();
    with_parameters.sort_unstable();
    with_parameters.dedup();
    of_parameters.iter().map(|piece| with_parameters.partition_point(|other| other < piece)).collect()
}

/// The network as a chain of pieces, each of which gathers its units before it is used.
fn gathering(
    architecture: &dyn Architecture,
    init: &Init,
    (measured, arrays): (&Measured, Vec<Array>),
    gatherings: &[Option<Gathering>],
) -> memcore::Result<Box<dyn Module>> {
    let mut of_pieces: Vec<Vec<Array>> = vec![Vec::new(); measured.pieces];
    for (parameter, array) in measured.parameters.iter().zip(arrays) {
        of_pieces[parameter.piece].push(array);
    }
    let within: Vec<Init> = of_pieces.into_iter().map(|arrays| init.inside(arrays)).collect();
    let at = |piece: usize| within.get(piece).unwrap_or(init).clone();
    let pieces = match architecture.indivisible() {
        None => architecture.pieces(&at)?,
        Some(_) => vec![architecture.build(&at(0))?],
    };
    let last = pieces.len().saturating_sub(1);
    let gathered = pieces.into_iter().enumerate().map(|(piece, inner)| {
        let Some(gathering) = gatherings.get(piece).cloned().flatten() else { return inner };
        // What both ends use stays gathered between them.
        let stays = architecture.shares_ends() && (piece == 0 || piece == last);
        Box::new(Gathered { inner, gathering, stays }) as Box<dyn Module>
    });
    Ok(Box::new(Sequential::from_modules(gathered.collect())))
}

/// Moves a gradient into its unit's bucket, and reduces the unit once all of its gradients are there.
fn reduce_when_complete(unit: &Unit, group: &Gathering, offset: usize, leaf: &Leaf) -> memcore::Result<()> {
    let Some(gradient) = leaf.grad() else { return Ok(()) };
    unit.collect(offset, &gradient)?;
    drop(gradient);
    leaf.set_grad(None);
    if unit.is_complete() {
        unit.reduce()?;
        unit.release()?;
        group.after_gradients()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memcore::Device;
    use memcore::backend::Meta;

    use super::super::settings::Stage;
    use super::super::tally::Tally;
    use super::*;

    #[test]
    fn parameters_lie_one_behind_the_other() {
        let device = Device::builder(Arc::new(Meta::default())).build();
        let tally = Arc::new(Tally::new(2));
        let kind = |stage| Kind { device: &device, stage, rank: 0, ranks: 2, tally: &tally };
        let parameter = |piece: usize, values: usize, is_trained: bool| {
            let dtype = if is_trained { DType::F32 } else { DType::BF16 };
            MeasuredParameter { piece, values, dtype, is_trained }
        };
        let parameters =
            vec![parameter(0, 4, true), parameter(2, 7, true), parameter(0, 9, false), parameter(0, 2, true)];
        let measured = Measured { pieces: 3, parameters, copies: Vec::new() };
        let places =
            |plan: &Plan| plan.places.iter().map(|place| place.map(|p| (p.unit, p.offset))).collect::<Vec<_>>();
        let plan = Plan::from_measured(&measured, &[0, 1, 0, 0], &kind(Stage::Parameters));
        assert_eq!(
            plan.units.iter().map(|unit| unit.sizes.clone()).collect::<Vec<_>>(),
            [vec![4, 2], vec![9], vec![7]]
        );
        assert_eq!(places(&plan), [Some((0, 0)), Some((2, 0)), Some((1, 0)), Some((0, 4))]);
        assert_eq!(plan.group_of_piece, [Some(0), None, Some(1)]);
        let plan = Plan::from_measured(&measured, &[0, 1, 0, 0], &kind(Stage::Gradients));
        assert_eq!(places(&plan), [Some((0, 0)), Some((1, 0)), None, Some((0, 4))]);
    }
}
