//! Settles what the arguments mean together with the network's file: the training loop, the release, and the types.

use lab_training::OptimizerKind;
use memcore::DType;
use memcore::optim::Implementation;
use serde_json::{Map, Value};

use super::found::{HfArgs, Refused};
use super::keys::{OF_SFT, OF_TRAINER, ONLY_4, ONLY_5};
use super::liger::with_liger;
use super::meaning::plain_dtype;
use crate::huggingface::{Configuration, MAX_GRAD_NORM, REPRESENTED, Release, SavedType, Script, trainer_optimizer};

/// Release of transformers assumed for arguments of release 4 if nothing names one: the last of release 4.
const LAST_4: &str = "4.57";

/// Context of a file of arguments: it decides which training loop, which release and which types they mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// The network's configuration of transformers.
    pub config: Option<Configuration<'a>>,
    /// Release that a flag names, else the one that is installed.
    pub release: Option<Release>,
    /// Training loop that a flag names.
    pub script: Option<Script>,
    /// True if the run has a plain loop only: the user's Python builds the network, or a step is divided among ranks.
    pub plain: bool,
}

/// Type of the weights, before autocast.
#[derive(Clone, Copy)]
enum Weights {
    /// Named by the arguments.
    Named(DType),
    /// Given by the release and the network's file.
    Loaded(DType),
}

impl Around<'_> {
    /// Adds the fields that follow from the arguments together.
    pub(super) fn settle(&self, arguments: &Map<String, Value>, found: &mut HfArgs) {
        let has = |names: &[&str]| names.iter().any(|name| arguments.contains_key(*name));
        let saved = self.config.and_then(|configuration| SavedType::of_configuration(configuration).ok());
        let of_4 = self.release.map_or(has(ONLY_4) && !has(ONLY_5), |release| !release.has_trainer());
        if has(OF_SFT) {
            let what = "TRL's SFTTrainer computes its loss and its metrics itself: counted as the Trainer of transformers does it, with the scores of all \
                        tokens, which TRL 1.16 makes in tiles (rehearsed, it allocated 459.6 MiB where vramlab counts 1.02 GiB, of 4 × 512 tokens and 32 000 words)";
            found.left_out.push(what.into());
        }
        if of_4 && is_reentrant(arguments) {
            let what = "gradient_checkpointing=true (release 4 takes use_reentrant=True unless told: counted as use_reentrant=False)";
            found.left_out.push(what.into());
        }
        let weights = match (weights(arguments).as_deref(), saved) {
            (Some("float32"), _) => Weights::Named(DType::F32),
            (Some("bfloat16"), _) => Weights::Named(DType::BF16),
            (Some("float16"), _) => Weights::Named(DType::F16),
            // TRL's own default, if it loads the network.
            (None, _) if has(OF_SFT) => Weights::Named(DType::F32),
            (None, _) if of_4 => Weights::Loaded(DType::F32),
            (_, Some(SavedType::Named(dtype))) => Weights::Loaded(dtype),
            _ => Weights::Loaded(DType::F32),
        };
        precision(arguments, weights, found);
        let by_liger = with_liger(arguments, self.config, found);
        if has(OF_TRAINER) {
            // The recorded Trainer has adapters over weights of 16 and of 32 bits.
            let few_bits = ["load-in-4bit", "load-in-8bit"].iter().any(|field| found.fields.contains_key(*field));
            Self { plain: self.plain || few_bits || by_liger, ..*self }.choose_loop(of_4, found);
        }
    }

    /// Adds the loop of a trainer that is made around the `Trainer` of transformers.
    pub(crate) fn with_trainer(&self, found: &mut HfArgs) {
        let tuned = ["lora", "load-in-4bit", "load-in-8bit", "loss", "liger", "zero"]
            .iter()
            .any(|field| found.fields.contains_key(*field));
        let around = Self { plain: self.plain || tuned, ..*self };
        around.choose_loop(self.release.is_some_and(|release| !release.has_trainer()), found);
    }

    /// Returns the name of the type in which the network's file is saved, if it says one.
    pub(crate) fn saved_type(&self) -> Option<&'static str> {
        match SavedType::of_configuration(self.config?).ok()? {
            SavedType::Named(dtype) => Some(dtype.name()),
            _ => None,
        }
    }

    /// Chooses the library's own loop if it is supported, else the plain loop with the settings of the library's.
    fn choose_loop(&self, of_4: bool, found: &mut HfArgs) {
        if self.plain {
            found
                .left_out
                .push("the Trainer of transformers (counted as a plain loop with its optimizer and clipping)".into());
            found.fields.insert("keep".into(), "loss".into());
            usual(of_4, found);
            // AdamW decays in place, and the driver's program has no rate to decay by.
            found.fields.remove("weight-decay");
            return;
        }
        if self.config.is_some() && self.script != Some(Script::Plain) && !of_4 {
            found.fields.insert("loop".into(), "trainer".into());
            if found.clips_nothing {
                let argument = "max_grad_norm=0: a Trainer that clips nothing".into();
                found.refusals.push(Refused { argument, field: Some("clip-grad-norm") });
            }
            return;
        }
        let of_trainer = self.config.is_some() && self.script.is_none();
        if self.config.is_none() {
            let what = "vramlab supports a Trainer around a config.json, and assumes a plain loop with its optimizer and clipping here";
            found.left_out.push(what.into());
        } else if of_4 {
            let release = self.release.map_or_else(|| LAST_4.to_string(), |release| release.to_string());
            if of_trainer {
                found.left_out.push(format!(
                    "vramlab does not support the Trainer of transformers {release}, and assumes a plain loop with its optimizer and clipping, which \
                     keeps the loss alone; --transformers {REPRESENTED} assumes the Trainer of that release"
                ));
                found.fields.insert("keep".into(), "loss".into());
            }
            if self.release.is_none() {
                found.fields.insert("transformers".into(), release.into());
            }
        }
        usual(of_4, found);
    }
}

/// Adds the defaults of `TrainingArguments`, for a loop with other defaults.
fn usual(of_4: bool, found: &mut HfArgs) {
    let adamw = trainer_optimizer(OptimizerKind::AdamW);
    let fused = adamw.implementation == Implementation::Fused && !of_4;
    let clips = !found.clips_nothing;
    let fields = &mut found.fields;
    // Another optimizer may have no fused form.
    let is_default = !fields.contains_key("optimizer");
    let mut unless_said = |name: &str, value: Value| {
        fields.entry(name).or_insert(value);
    };
    if is_default {
        unless_said("optimizer", "adamw".into());
        unless_said("optimizer-impl", if fused { "fused" } else { "foreach" }.into());
    }
    unless_said("lr", adamw.lr.into());
    unless_said("weight-decay", adamw.weight_decay.unwrap_or_default().into());
    if clips {
        unless_said("clip-grad-norm", MAX_GRAD_NORM.into());
    }
}

/// True if release 4 checkpoints with `use_reentrant=True`: its `gradient_checkpointing_enable` does so without arguments.
fn is_reentrant(arguments: &Map<String, Value>) -> bool {
    let kwargs = arguments.get("gradient_checkpointing_kwargs").filter(|kwargs| !kwargs.is_null());
    arguments.get("gradient_checkpointing") == Some(&Value::Bool(true)) && kwargs.is_none()
}

/// Returns the type of the weights that the arguments name, or `auto`.
fn weights(arguments: &Map<String, Value>) -> Option<String> {
    let named = |arguments: &Map<String, Value>| {
        let name = ["dtype", "torch_dtype"].iter().find_map(|name| arguments.get(*name)?.as_str());
        name.map(|name| plain_dtype(name).to_string())
    };
    arguments.get("model_init_kwargs").and_then(Value::as_object).and_then(named).or_else(|| named(arguments))
}

/// Combines the weights' type and `bf16` or `fp16` into one precision. Without any of them the file and the release decide.
fn precision(arguments: &Map<String, Value>, weights: Weights, found: &mut HfArgs) {
    let on = |name: &str| arguments.get(name) == Some(&Value::Bool(true));
    let (bf16, fp16) = (on("bf16"), on("fp16") && !on("bf16"));
    let precision = match (weights, bf16 || fp16) {
        (Weights::Loaded(_), false) => return,
        (Weights::Named(DType::BF16), false) => "bf16",
        (Weights::Named(DType::F16), false) => "fp16",
        (Weights::Named(_), false) => "fp32",
        (Weights::Named(DType::F32) | Weights::Loaded(DType::F32), true) if bf16 => "autocast-bf16",
        (Weights::Named(DType::F32) | Weights::Loaded(DType::F32), true) => "autocast-fp16",
        (Weights::Named(DType::BF16) | Weights::Loaded(DType::BF16), true) if bf16 => "bf16-autocast-bf16",
        (Weights::Named(other) | Weights::Loaded(other), true) => {
            let argument = if bf16 { "bf16=true" } else { "fp16=true" };
            let argument = format!("{argument} over {} weights", other.name());
            return found.refusals.push(Refused { argument, field: Some("precision") });
        }
    };
    found.fields.insert("precision".into(), precision.into());
}
