//! The network of a run: one of this program, one of the transformers library, or one that PyTorch exported.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_imports::exported::{self, Exported};
use lab_imports::huggingface::{self, Attention, Configuration, Keep, Pretrained, Script};
use lab_models::{self, Architecture, Freeze, LoraTarget, ModelOptions, Recompute};
use lab_training::data_parallel::{self, DataParallelResult, DataParallelSettings};
use lab_training::pipeline::{self, PipelineResult, PipelineSettings};
use lab_training::{self, Continuation, Failed, Progress, RunResult, RunSettings, Source};
use memcore::Device;

use super::choices::{AttentionName, LossChoice};
use super::spec::ModelSpec;

/// A network that is not on a device yet.
pub enum Network {
    /// A network of this program, with the loss of its task.
    Architecture(Box<dyn Architecture>),
    /// A network of transformers, which computes its own loss, and what the surrounding script keeps of a result.
    Pretrained(Box<Pretrained>, Keep),
    /// A graph exported by PyTorch, with its own loss or a chosen one, and warnings about it.
    Exported(Box<Exported>, Vec<String>),
}

/// Tokens per example of a network of transformers, unless said: what fine-tuning takes, not the longest that the network could read.
pub(super) const USUAL_TOKENS: usize = 2048;

/// Reads a configuration. Without a length an example has [`USUAL_TOKENS`], or as many as the network takes if these are fewer.
fn of_usual_length(
    configuration: Configuration<'_>,
    options: &huggingface::Options,
) -> Result<huggingface::Pretrained> {
    let longest = configuration.load(options);
    let is_longer = match &longest {
        Ok(model) => model.positions().is_some_and(|positions| positions > USUAL_TOKENS),
        // Some of what is not supported is so only at its full length.
        Err(_) => true,
    };
    if options.sequence.is_some() || !is_longer {
        return longest;
    }
    let usual = configuration.load(&huggingface::Options { sequence: Some(USUAL_TOKENS), ..options.clone() });
    if longest.is_err() && usual.is_err() { longest } else { usual }
}

/// Refuses a form of attention other than that of the graph.
fn check_attention(model: &Exported, wanted: Option<AttentionName>) -> Result<()> {
    let of_graph = if model.has_fused_attention() { AttentionName::Sdpa } else { AttentionName::Eager };
    match wanted {
        Some(wanted) if wanted != of_graph => {
            let problem = format!(
                "{wanted}: the graph has {of_graph}; model.set_attn_implementation(\"{wanted}\") before vramlab.export gives the other"
            );
            Err(Error::usage("attention", problem))
        }
        _ => Ok(()),
    }
}

/// Why PEFT's choice of layers is not known for a built-in network.
const OF_OWN: &str = "PEFT chooses no layers of vramlab's own networks: --lora-target all-linear, or a network of transformers (gpt2-small)";

impl Network {
    /// Reads a `config.json`, if the model file is one.
    ///
    /// # Errors
    /// Fields that do not apply to such a network; settings of the file that are not supported.
    pub(super) fn pretrained(spec: &ModelSpec) -> Result<Option<Self>> {
        if spec.graph.is_some() {
            return Ok(None);
        }
        let Some(configuration) = spec.configuration() else {
            return match spec.of_pretrained() {
                Some(field) => Err(Error::usage(field, "only a config.json of transformers has it")),
                None => Ok(None),
            };
        };
        if spec.loss.is_some_and(|loss| loss.end().is_none()) {
            return Err(Error::usage(
                "loss",
                "a config.json of transformers has its own, checkpointed, chunked and liger",
            ));
        }
        if spec.by_trainer() && spec.keep.is_some() {
            return Err(Error::usage("keep", "with --loop trainer nothing of a result is held"));
        }
        let mut others = spec.options();
        (others.sequence, others.fused_attention, others.recompute) = (None, false, Recompute::None);
        others.only(&configuration.name(), &[])?;
        let model = spec.read(configuration)?;
        Ok(Some(Self::Pretrained(Box::new(model), spec.keep.unwrap_or_default())))
    }

    /// Reads a `.pt2` file, if the model file is one.
    ///
    /// # Errors
    /// Fields that do not apply to an exported network; contents of the file that are not supported.
    pub(super) fn exported(spec: &ModelSpec) -> Result<Option<Self>> {
        if let Some(path) = &spec.graph {
            let name = spec.shown_name();
            let model = spec.as_the_run_says(spec.reads.kept_graph(path, &name, spec.sequence)?)?;
            return Ok(Some(Self::of_graph(model)));
        }
        if let Some(name) = spec.recorded() {
            let others = ModelOptions {
                recompute: Recompute::None,
                sequence: None,
                layers: None,
                fused_attention: false,
                ..spec.options()
            };
            others.only(name, &[])?;
            let model = spec.reads.recorded(name, spec.layers, spec.sequence, USUAL_TOKENS, spec.loss_of_output()?)?;
            return Ok(Some(Self::of_graph(spec.as_the_run_says(model)?)));
        }
        let Some(path) = spec.model_file.as_deref().filter(|path| exported::is_export(path)) else {
            spec.model_file.as_deref().map_or(Ok(()), exported::check_ending)?;
            return match (spec.adversary.is_some(), spec.loss) {
                (true, _) => Err(Error::usage("adversary", "only a model.pt2 of torch.export has it")),
                (false, Some(LossChoice::Named(_))) => {
                    Err(Error::usage("loss", "only a model.pt2 of torch.export has it"))
                }
                (false, Some(_)) if !spec.is_pretrained() => spec.loss_of_output().map(|_| None),
                (false, _) => Ok(None),
            };
        };
        let others =
            ModelOptions { recompute: Recompute::None, sequence: None, fused_attention: false, ..spec.options() };
        others.only(&path.display().to_string(), &[])?;
        if let Some(field) = spec.of_pretrained() {
            return Err(Error::usage(field, "only a config.json of transformers has it"));
        }
        let model = spec.reads.load(path, spec.loss_of_output()?)?;
        let model = spec.as_the_run_says(match spec.sequence {
            Some(tokens) => model.of_length(tokens)?,
            None => model,
        })?;
        let model = match &spec.adversary {
            None => model,
            Some(_) if spec.loss.is_some() => {
                return Err(Error::usage("loss", "--adversary has its own: binary cross entropy of the scores"));
            }
            Some(path) => model.against(spec.reads.load(path, None)?)?,
        };
        Ok(Some(Self::of_graph(model)))
    }

    /// A graph, with what it says of itself.
    fn of_graph(model: Exported) -> Self {
        let notes = model.notes();
        Self::Exported(Box::new(model), notes)
    }

    /// Unknown keys of the file, and decisions that were made for it.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Architecture(_) => &[],
            Self::Pretrained(model, _) => &model.warnings,
            Self::Exported(_, notes) => notes,
        }
    }

    /// The network's architecture.
    pub fn architecture(&self) -> &dyn Architecture {
        match self {
            Self::Architecture(architecture) => architecture.as_ref(),
            Self::Pretrained(model, _) => model.as_ref(),
            Self::Exported(model, _) => model.as_ref(),
        }
    }

    /// Returns the layers that get an adapter unless the run names some: PEFT's own choice.
    ///
    /// # Errors
    /// [`Error::Usage`] for a network for which PEFT has none.
    pub(super) fn lora_target(&self) -> Result<LoraTarget> {
        let (own, problem) = match self {
            Self::Pretrained(model, _) => (model.lora_target(), OF_OWN.to_string()),
            Self::Architecture(_) => (None, OF_OWN.to_string()),
            Self::Exported(model, _) => (
                model.lora_target(),
                model.usual_lora_target().map_or(OF_OWN.into(), |usual| {
                    format!("PEFT chooses no layers of this network: --lora-target {usual}")
                }),
            ),
        };
        own.ok_or_else(|| Error::usage("lora", problem))
    }

    /// The same patterns, of which each counts for every name that a parameter has in the network.
    pub(super) fn named_for(&self, freeze: Freeze) -> Freeze {
        match self {
            Self::Exported(model, _) => freeze.with_shared(model.shared_names()),
            Self::Architecture(_) | Self::Pretrained(..) => freeze,
        }
    }

    /// Refuses adapters on a network that cannot get them here. `saves`: true if modules are copied beside them.
    ///
    /// # Errors
    /// [`Error::Usage`] with a way that works.
    pub(super) fn check_lora(&self, target: &LoraTarget, saves: bool) -> Result<()> {
        match self {
            Self::Architecture(_) => Ok(()),
            Self::Pretrained(model, _) if model.is_language_model() => Ok(()),
            Self::Pretrained(..) => Err(Error::usage(
                "lora",
                "PEFT trains a copy of this head, too, which is not supported: rehearse the script (vramlab predict train.py)",
            )),
            Self::Exported(model, _) => model.check_lora(target, saves),
        }
    }

    /// Refuses a length of a batch with which a network of transformers behaves differently from its longest one.
    ///
    /// # Errors
    /// Those of the network with this length, naming it.
    pub(super) fn check_length(&self, spec: &ModelSpec, length: usize, run: &RunSettings) -> Result<()> {
        let (Self::Pretrained(..), Some(configuration)) = (self, spec.configuration()) else { return Ok(()) };
        let options = huggingface::Options { sequence: Some(length), ..spec.pretrained_options() };
        let checked = configuration.load(&options).and_then(|model| model.check(run.batch, run.precision.dtype()));
        checked.map_err(|error| Error::usage("lengths", format!("{length}: {error}")))
    }

    /// Synthetic batches of the kind that it is trained on: the same in every step, or a new one each time.
    pub(super) fn synthetic(&self, seed: u64) -> Source {
        match self {
            Self::Architecture(_) | Self::Exported(..) => Source::Synthetic { seed },
            Self::Pretrained(..) => Source::Renewed { seed },
        }
    }

    /// Trains the network from where `continuation` begins, and saves in it what the next run needs.
    ///
    /// # Errors
    /// Settings that cannot work, a file that does not fit, those of the device; with what was measured before.
    pub(super) fn train(
        &self,
        device: &Device,
        settings: &RunSettings,
        source: &Source,
        continuation: &mut Continuation<'_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<RunResult, Failed> {
        match self {
            Self::Architecture(architecture) => lab_training::train_from(
                architecture.as_ref(),
                device,
                settings,
                source.clone(),
                continuation,
                progress,
            ),
            Self::Pretrained(model, keep) => {
                huggingface::train_from(model, device, settings, source.clone(), *keep, continuation, progress)
            }
            Self::Exported(model, _) => {
                exported::train_from(model, device, settings, source.clone(), continuation, progress)
            }
        }
    }

    /// Trains the network split over devices.
    ///
    /// # Errors
    /// Settings that cannot work or that the network does not have; those of the devices, with the losses until then.
    pub fn train_split(
        &self,
        devices: &[Device],
        settings: &PipelineSettings,
        source: &Source,
        continuation: &mut Continuation<'_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<PipelineResult, Failed> {
        let source = source.clone();
        match self {
            Self::Exported(model, _) => exported::train_split(model, devices, settings, source, continuation, progress),
            Self::Architecture(_) | Self::Pretrained(..) => {
                pipeline::train_from(self.architecture(), devices, settings, source, continuation, progress)
            }
        }
    }

    /// Trains the ranks of a step that is divided, each on its device.
    ///
    /// # Errors
    /// Settings that cannot work or that the network does not have; those of the devices.
    pub fn train_ranks(
        &self,
        devices: &[Device],
        settings: &DataParallelSettings,
        source: &Source,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<DataParallelResult, Failed> {
        match self {
            Self::Exported(model, _) => exported::train_ranks(model, devices, settings, source, progress),
            Self::Pretrained(model, keep) => {
                huggingface::train_ranks(model, devices, settings, source, *keep, progress)
            }
            Self::Architecture(architecture) => {
                data_parallel::train(architecture.as_ref(), devices, settings, source, progress)
            }
        }
    }
}

impl ModelSpec {
    /// Returns a network of this program by its name.
    pub(super) fn architecture(&self) -> Result<Box<dyn Architecture>> {
        lab_models::architecture(self.name(), &self.options())
    }

    /// The network's name, if this program has it as a recorded graph.
    pub fn recorded(&self) -> Option<&str> {
        let name = self.model.as_deref().filter(|_| self.model_file.is_none())?;
        exported::is_recorded(name).then_some(name)
    }

    /// The network's configuration of the transformers library: the model file, or one that this program knows by name.
    pub fn configuration(&self) -> Option<Configuration<'_>> {
        let Some(path) = self.model_file.as_deref() else {
            return huggingface::find(self.model.as_deref()?).map(Configuration::Known);
        };
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        is_json.then_some(Configuration::File(path))
    }

    /// True if the network is one of transformers, described by its configuration.
    pub fn is_pretrained(&self) -> bool {
        self.configuration().is_some()
    }

    /// Reads a configuration of transformers with the options of this run, and examples of the usual length unless it names one.
    ///
    /// # Errors
    /// A configuration that cannot be read, or that is not supported.
    pub fn read(&self, configuration: Configuration<'_>) -> Result<Pretrained> {
        of_usual_length(configuration, &self.pretrained_options())
    }

    /// Options for such a configuration.
    pub(crate) fn pretrained_options(&self) -> huggingface::Options {
        huggingface::Options {
            sequence: self.sequence,
            attention: self.attention.map(Attention::from).unwrap_or_default(),
            checkpoint: self.checkpoint.clone().unwrap_or_default(),
            attention_mask: self.attention_mask.unwrap_or_default(),
            head: self.head,
            choices: self.choices,
            transformers: Some(self.release()),
            built_on_device: self.built_on_device,
            load_as: self.release().loads_as(),
            script: self.script.unwrap_or(Script::Plain),
            end: if self.liger {
                huggingface::End::Kernels
            } else {
                self.loss.and_then(LossChoice::end).unwrap_or_default()
            },
            logits_to_keep: self.logits_to_keep,
            packing: self.packing,
            ..huggingface::Options::default()
        }
    }

    /// A graph with the blocks that this run computes again, if it has the attention that the run names.
    ///
    /// # Errors
    /// Blocks that it does not have; another attention.
    fn as_the_run_says(&self, model: Exported) -> Result<Exported> {
        let model = model.recomputing(&self.checkpoint.clone().unwrap_or_default())?;
        check_attention(&model, self.attention)?;
        Ok(model)
    }

    /// Returns the function of a `.pt2`'s output.
    ///
    /// # Errors
    /// [`Error::Usage`] for a form of a decoder's loss.
    fn loss_of_output(&self) -> Result<Option<exported::LossName>> {
        match self.loss {
            Some(choice) if choice.of_output().is_none() => {
                Err(Error::usage("loss", "checkpointed, chunked and liger are for a config.json of transformers"))
            }
            choice => Ok(choice.and_then(LossChoice::of_output)),
        }
    }

    /// Name of the first given field that applies only to a `config.json`; `None` if there is none.
    fn of_pretrained(&self) -> Option<&'static str> {
        let given = [
            ("head", self.head.is_some()),
            ("choices", self.choices.is_some()),
            ("transformers", self.transformers.is_some()),
            ("keep", self.keep.is_some()),
            ("attention-mask", self.attention_mask.is_some()),
            ("logits-to-keep", self.logits_to_keep.is_some()),
            ("packing", self.packing.is_some()),
            ("liger", self.liger),
            ("built-on-device", self.built_on_device),
            ("loop", self.script.is_some()),
        ];
        given.iter().find(|(_, given)| *given).map(|(field, _)| *field)
    }

    /// Options for the constructor of a network of this program.
    pub(super) fn options(&self) -> ModelOptions {
        ModelOptions {
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            sequence: self.sequence,
            vocabulary: self.vocabulary,
            features: self.features,
            image: self.image,
            classes: self.classes,
            dropout: self.dropout,
            fused_attention: self.attention == Some(AttentionName::Sdpa),
            tied: self.tied,
            keep_intermediate: self.keep_intermediate,
            recompute: self.checkpoint.clone().unwrap_or_default(),
        }
    }
}
