//! An exported network in a step that is divided among ranks, whatever inputs it has and wherever its loss is computed.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Defaults, Task};
use lab_training::data_parallel::{DataParallelResult, DataParallelSettings, Rank, Share, Stage, train_each};
use lab_training::{Failed, Progress, Source};
use memcore::nn::{Init, Module, Parameter};
use memcore::{DType, Device, Tensor};

use super::model::Exported;
use super::network::Network;
use super::step::{ExportedStep, check_source, scheduled};
use super::types;

/// A network, and what was built of it last. A rank builds it, and its step runs it with all inputs.
struct OnRank<'a> {
    model: &'a Exported,
    built: Mutex<Option<Arc<Network>>>,
}

/// What a rank holds of the network. Its step runs the network itself.
struct Held(#[expect(dead_code, reason = "owns the tensors, as the module of any other network does")] Arc<Network>);

impl Module for Held {
    fn forward(&self, _: &Tensor) -> memcore::Result<Tensor> {
        Err(memcore::Error::invalid("forward", "the step of an exported network runs it with all of its inputs"))
    }
}

impl Architecture for OnRank<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn description(&self) -> String {
        self.model.description()
    }

    fn task(&self) -> Task {
        self.model.task()
    }

    fn defaults(&self) -> Defaults {
        self.model.defaults()
    }

    fn check(&self, batch: usize, weights: DType) -> Result<()> {
        self.model.check(batch, weights)
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        let network = Arc::new(self.model.network(init)?);
        *self.built.lock().unwrap_or_else(PoisonError::into_inner) = Some(network.clone());
        Ok(Box::new(Held(network)))
    }

    fn indivisible(&self) -> Option<&'static str> {
        self.model.indivisible()
    }

    fn one_length(&self) -> Option<&'static str> {
        self.model.one_length()
    }

    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        self.model.optimizer_order(parameters)
    }
}

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
        let network = OnRank { model, built: Mutex::default() };
        let step = |Share { model: held, update, run, before_forward }: Share| {
            let built = network.built.lock().unwrap_or_else(PoisonError::into_inner).take();
            let built = built.ok_or_else(|| Error::usage("data-parallel", "the network was not built"))?;
            let parts = (held.parameters, held.buffers, update);
            let run = scheduled(model, &run)?;
            Ok(ExportedStep::around(model, device, built, parts, run, source.clone()).after(before_forward))
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
