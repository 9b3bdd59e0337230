//! Short training runs and their events, for tests of a device: values and bytes must be the same on every device.
//! Backends include this file by its path.
#![allow(dead_code, reason = "each of the tests that include it uses a part")]

use std::sync::Arc;

use lab::models::{ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::backend::Backend;
use memcore::memory::Event;
use memcore::{Device, Profile};

pub(crate) mod experiments;

/// A device that keeps its events.
pub(crate) fn device(backend: Arc<dyn Backend>, profile: Profile) -> Device {
    Device::builder(backend).profile(profile).history(true).build()
}

/// Steps of two examples. The network's own optimizer, unless another is asked for.
pub(crate) fn settings(
    name: &str,
    options: &ModelOptions,
    optimizer: Option<OptimizerSettings>,
    steps: usize,
) -> lab::Result<RunSettings> {
    let defaults = architecture(name, options)?.defaults();
    let own = || Ok::<_, lab::Error>(OptimizerSettings::new(OptimizerKind::parse(defaults.optimizer)?, defaults.lr));
    Ok(RunSettings { seed: 3, ..RunSettings::new(2, steps, optimizer.map_or_else(own, Ok)?) })
}

/// The events of two steps, and the losses where there are values.
pub(crate) fn train(
    name: &str,
    options: &ModelOptions,
    optimizer: Option<OptimizerSettings>,
    device: Device,
) -> lab::Result<(Vec<Event>, Vec<f64>)> {
    run(name, options, &settings(name, options, optimizer, 2)?, device)
}

/// The same of any settings.
pub(crate) fn run(
    name: &str,
    options: &ModelOptions,
    settings: &RunSettings,
    device: Device,
) -> lab::Result<(Vec<Event>, Vec<f64>)> {
    let network = architecture(name, options)?;
    let mut trainer = Trainer::build(&*network, &device, settings, Source::Synthetic { seed: 5 }, "")?;
    let losses = (0..settings.steps).map(|step| trainer.step(step)).collect::<lab::Result<Vec<_>>>()?;
    trainer.finish(Some("end"));
    let events = device.with_ledger(|ledger| ledger.history().to_vec());
    Ok((events, losses.into_iter().flatten().collect()))
}

/// Fails if the lists differ, and shows the first difference.
pub(crate) fn same((name, events): (&str, &[Event]), (other, others): (&str, &[Event])) -> Result<(), String> {
    match (0..events.len().max(others.len())).find(|&i| events.get(i) != others.get(i)) {
        Some(i) => Err(format!("event {i}: {:?} on {name}, {:?} on {other}", events.get(i), others.get(i))),
        None => Ok(()),
    }
}
