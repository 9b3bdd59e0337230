//! What is trained: a network of our own, or one of the transformers library.

use std::ops::ControlFlow;

use lab::huggingface::{self, Keep, Pretrained};
use lab::models::{Architecture, Defaults, Recompute, Task};
use lab::training::{self, Continuation, Failed, Progress, RunResult, RunSettings, Source};
use memcore::Device;

use crate::args::ModelArgs;
use crate::exit::{Failure, Result};

/// A network before it is on a device.
pub(super) enum Subject {
    /// With a loss of its own task.
    Architecture(Box<dyn Architecture>),
    /// With its loss inside, and what the script around it holds of a result.
    Pretrained(Box<Pretrained>, Keep),
}

impl Subject {
    /// From a `config.json`, when the model file is one.
    ///
    /// # Errors
    /// What no such network has; what the file asks for and is not represented.
    pub(super) fn pretrained(args: &ModelArgs) -> Result<Option<Self>> {
        let Some(path) = args.config_json() else {
            return match args.of_pretrained() {
                Some(flag) => Err(Failure::usage(format!("{flag}: only a config.json of transformers has it"))),
                None => Ok(None),
            };
        };
        if let Some(recompute @ (Recompute::Sqrt | Recompute::These(_))) = &args.checkpoint {
            let problem = format!("--checkpoint {recompute}: a config.json of transformers has none and blocks");
            return Err(Failure::usage(problem));
        }
        if args.by_trainer() && args.keep.is_some() {
            return Err(Failure::usage("--keep: with --loop trainer nothing of a result is held"));
        }
        let mut others = args.options();
        (others.sequence, others.fused_attention, others.recompute) = (None, false, Recompute::None);
        others.only(&path.display().to_string(), &[])?;
        let model = huggingface::load(path, &args.pretrained_options())?;
        Ok(Some(Self::Pretrained(Box::new(model), args.kept())))
    }

    /// What the file says and nobody here knows.
    pub(super) fn warnings(&self) -> &[String] {
        match self {
            Self::Architecture(_) => &[],
            Self::Pretrained(model, _) => &model.warnings,
        }
    }

    /// What it is, what it does, how it is built.
    pub(super) fn architecture(&self) -> &dyn Architecture {
        match self {
            Self::Architecture(architecture) => architecture.as_ref(),
            Self::Pretrained(model, _) => model.as_ref(),
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        self.architecture().name()
    }

    /// One line about it.
    pub(super) fn description(&self) -> String {
        self.architecture().description()
    }

    /// What it is trained to do.
    pub(super) fn task(&self) -> Task {
        self.architecture().task()
    }

    /// What it is trained with unless said.
    pub(super) fn defaults(&self) -> Defaults {
        self.architecture().defaults()
    }

    /// Whether it learns from a data set, or from synthetic batches only.
    pub(super) fn takes_data(&self) -> bool {
        matches!(self, Self::Architecture(_))
    }

    /// Trains it.
    ///
    /// # Errors
    /// Settings that cannot work; those of the device; with what was measured before.
    pub(super) fn train(
        &self,
        device: &Device,
        settings: &RunSettings,
        source: &Source,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<RunResult, Failed> {
        self.train_from(device, settings, source, &mut Continuation::default(), progress)
    }

    /// The same, with a beginning from a file, or with what the next run needs to go on.
    ///
    /// # Errors
    /// As [`train`](Self::train); a file that does not fit.
    pub(super) fn train_from(
        &self,
        device: &Device,
        settings: &RunSettings,
        source: &Source,
        continuation: &mut Continuation<'_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<RunResult, Failed> {
        match self {
            Self::Architecture(architecture) => {
                training::train_from(architecture.as_ref(), device, settings, source.clone(), continuation, progress)
            }
            Self::Pretrained(model, keep) => {
                huggingface::train_from(model, device, settings, *keep, continuation, progress)
            }
        }
    }
}
