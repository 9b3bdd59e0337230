//! A step that is divided among ranks: dry runs of the first and the last of them, each on its device.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_imports::huggingface::{AttentionMask, Keep};
use lab_training::data_parallel::{DataParallelResult, DataParallelSettings, Stage};
use lab_training::{Failed, Progress, RunSettings, Schedule};
use memcore::{DType, Device};

use super::choices::LossChoice;
use super::flat::{End, Ends};
use super::network::Network;
use super::session::{Session, flow};
use super::spec::RunSpec;

/// A run whose steps are divided, ready to start.
pub struct Divided {
    /// The run as on one device, with the batch of all ranks.
    pub session: Session,
    /// How its steps are divided.
    pub settings: DataParallelSettings,
    /// What of the run differs from one device's, besides the division.
    pub notes: Vec<String>,
}

impl Divided {
    /// Divides a run, of which `session` is the form on one device.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a field that cannot be combined with the division.
    pub fn from_spec(spec: &RunSpec, session: Session) -> Result<Self> {
        spec.check()?;
        let ranks = &spec.parallel.ranks;
        let stage = ranks.zero.and_then(|stage| Stage::ALL.get(usize::from(stage)).copied()).unwrap_or_default();
        check(spec, &session, stage)?;
        let settings = DataParallelSettings {
            ranks: ranks.data_parallel.unwrap_or(1),
            stage,
            master_weights: ranks.zero.is_some() && session.run.trained_dtype() != DType::F32,
            gradient_as_bucket_view: ranks.gradient_as_bucket_view,
            sync_each: ranks.sync_each,
            run: session.run.clone(),
        };
        settings.check()?;
        let pretrained = matches!(session.network, Network::Pretrained(..));
        let only_the_loss = stage.divides_parameters() && pretrained && spec.model.keep.is_none();
        let loss = "With ZeRO-3 only the loss of a result is held here; on one card its scores and cache are, too.";
        let gathered = "ZeRO-3 gathers one block at a time here. FSDP2 takes more (a small Llama with LoRA: 263 MiB instead of 199): a rehearsal of the script has its bytes.";
        let of_zero_3 = stage.divides_parameters() && pretrained;
        let notes = [(only_the_loss, loss), (of_zero_3, gathered)];
        let notes = notes.into_iter().filter(|(is_said, _)| *is_said).map(|(_, note)| note.into()).collect();
        Ok(Self { session, settings, notes })
    }

    /// Opens a device for each rank that is run.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn open(&self, history: bool) -> Result<Vec<Device>> {
        let target = self.session.target.clone().history(history);
        self.settings.shown().iter().map(|_| Ok(target.open()?)).collect()
    }

    /// Trains on opened devices.
    ///
    /// # Errors
    /// Settings that cannot work; those of the devices.
    pub fn train(
        &self,
        devices: &[Device],
        on_step: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<DataParallelResult> {
        self.train_with(&self.settings, devices, on_step)
    }

    /// Trains with other settings; on fewer devices than there are ranks that are shown, the first of these.
    pub(super) fn train_with(
        &self,
        settings: &DataParallelSettings,
        devices: &[Device],
        on_step: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<DataParallelResult> {
        let Session { network, source, .. } = &self.session;
        network.train_ranks(devices, settings, source, on_step).map_err(|Failed { error, .. }| error)
    }

    /// Trains on opened devices until the memory of each is flat, and at most for `most` steps.
    pub(super) fn train_until_flat(&self, devices: &[Device], most: usize, stop: &dyn Fn() -> bool) -> Result<()> {
        let run = RunSettings { steps: most, ..self.settings.run.clone() };
        let mut ends: Vec<Ends> = devices.iter().map(|_| Ends::new(run.period())).collect();
        let on_step = &mut |_| {
            let each = devices.iter().zip(&mut ends).map(|(device, ends)| ends.step(device));
            let going_on = each.filter(|end| *end == End::GoOn).count();
            if going_on == 0 { ControlFlow::Break(()) } else { flow(stop) }
        };
        self.train_with(&DataParallelSettings { run, ..self.settings.clone() }, devices, on_step).map(drop)
    }
}

/// Refuses what a divided run of a `config.json` does not have.
fn check(spec: &RunSpec, session: &Session, stage: Stage) -> Result<()> {
    let (model, divides) = (&spec.model, stage.divides_parameters());
    let asked = [
        ("loop", model.by_trainer(), "vramlab does not support a Trainer with data-parallel; --loop plain works"),
        (
            "built-on-device",
            model.built_on_device && stage != Stage::Replicated,
            "vramlab does not support it with zero",
        ),
        (
            "attention-mask",
            divides && model.attention_mask.is_some_and(|mask| mask != AttentionMask::None),
            "vramlab does not support it with zero 3",
        ),
        (
            "loss",
            divides && model.loss.and_then(LossChoice::end).is_some(),
            "vramlab supports only the network's own with zero 3; with zero 2 the others work",
        ),
        (
            "keep",
            divides && model.keep == Some(Keep::Output),
            "output: with zero 3 a script holds only the loss of a result",
        ),
        (
            "schedule",
            divides
                && matches!(session.network, Network::Pretrained(..))
                && session.run.schedule != Schedule::default(),
            "with zero 3 networks of transformers are trained in the usual order",
        ),
    ];
    match asked.into_iter().find(|(_, asked, _)| *asked) {
        Some((field, _, problem)) => Err(Error::usage(field, problem)),
        None => Ok(()),
    }
}
