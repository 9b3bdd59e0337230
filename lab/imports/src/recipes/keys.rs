//! Keys of a recipe by their effect, and what is collected from them.

use lab_base::error::{Error, Result};
use lab_base::similar;
use lab_models::{LORA_SWITCHES, SAVED_MODULES};
use serde_json::{Map, Value};

use crate::hf_args::{self, HfArgs, Refused, is_on, said};

/// Effect of a key on the memory of a training step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// None: logs, paths, seeds, learning rates, texts.
    Nothing,
    /// A whole number is this field of a run.
    Whole(&'static str),
    /// A number is this field of a run.
    Number(&'static str),
    /// Read together with other keys.
    Read,
    /// If it is on, it changes memory and is not supported; the field that can replace it.
    Unsupported(Option<&'static str>),
    /// A number above one changes memory and is not supported; the field that can replace it.
    AboveOne(Option<&'static str>),
    /// If it is on, the answer is not exact: how memory differs.
    Inexact(&'static str),
}

/// The meaning of a recipe for the memory of a training step.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Fields of a run, errors, sentences on what is not counted as it is done, and unknown keys.
    pub args: HfArgs,
    /// Keys that change no memory, as far as they are set.
    pub without_effect: Vec<String>,
}

/// What stands for fused losses.
const FUSED_LOSS: &str = "chunked:32";

/// A trainer's keys.
pub(super) type Table = &'static [(Effect, &'static [&'static str])];

/// The keys of a recipe with their values.
pub(super) struct Keys<'a>(&'a Map<String, Value>);

impl<'a> Keys<'a> {
    pub(super) fn new(keys: &'a Map<String, Value>) -> Self {
        Self(keys)
    }

    /// Returns a value that is not null.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name)?.as_str().filter(|text| !text.is_empty())
    }

    pub(super) fn whole(&self, name: &str) -> Option<u64> {
        self.value(name)?.as_u64()
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        number(self.value(name)?)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.value(name).is_some_and(is_on)
    }

    /// Returns the keys of an object.
    pub(super) fn inner(&self, name: &str) -> Keys<'a> {
        static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        Keys(self.value(name).and_then(Value::as_object).unwrap_or(&NONE))
    }

    /// Returns texts: those of a list, or those between commas.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(String::from).collect(),
            Some(Value::String(text)) => {
                text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(String::from).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns a number, also one that YAML leaves as a text (`1e-4`).
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number: &f64| number.is_finite())
}

/// True if the key is an option of adapters that all trainers have.
fn is_of_adapters(name: &str) -> bool {
    LORA_SWITCHES.iter().any(|switch| [switch.peft, switch.axolotl].contains(&name)) || SAVED_MODULES.contains(&name)
}

/// True if a text is a regular expression, not the name of a layer.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '|', '\\', '(', '[', '^', '$', '+', '?'])
}

/// Returns ` (did you mean …?)` if a known key differs in at most two letters, or in one of a short one.
fn nearly(name: &str, known: impl Iterator<Item = &'static str>) -> String {
    let most = if name.len() < 8 { 1 } else { 2 };
    let near = known.map(|known| (similar::slips(known, name), known)).filter(|(slips, _)| *slips <= most).min();
    near.map_or(String::new(), |(_, known)| format!(" (did you mean {known}?)"))
}

/// What is collected from a recipe.
pub(super) struct Taken<'a> {
    file: &'a str,
    table: Table,
    /// True if the trainer takes the keys of `TrainingArguments`, too.
    with_arguments: bool,
    pub(super) args: HfArgs,
    without_effect: Vec<String>,
}

impl<'a> Taken<'a> {
    pub(super) fn new(file: &'a str, table: Table, with_arguments: bool) -> Self {
        Self { file, table, with_arguments, args: HfArgs::default(), without_effect: Vec::new() }
    }

    /// Takes each key by its effect.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a key with a senseless value.
    pub(super) fn take(&mut self, keys: &Map<String, Value>) -> Result<()> {
        for (name, value) in keys {
            let effect = self.table.iter().find(|(_, names)| names.contains(&name.as_str())).map(|(effect, _)| *effect);
            match effect {
                Some(Effect::Read) => {}
                None if is_of_adapters(name) => {}
                Some(_) if value.is_null() => self.without_effect.push(name.clone()),
                Some(effect) => self.take_one(name, value, effect)?,
                None => self.take_other(name, value)?,
            }
        }
        Ok(())
    }

    fn take_one(&mut self, name: &str, value: &Value, effect: Effect) -> Result<()> {
        let senseless = |expected: &str| Error::usage(self.file, format!("{}: expected {expected}", said(name, value)));
        match effect {
            Effect::Whole(field) => {
                let number = value.as_u64().ok_or_else(|| senseless("a whole number"))?;
                self.set(field, number);
            }
            Effect::Number(field) => {
                let number = number(value).ok_or_else(|| senseless("a number"))?;
                self.set(field, number);
            }
            Effect::Unsupported(field) if is_on(value) => self.unsupported(name, value, field),
            Effect::AboveOne(field) if number(value).is_none_or(|number| number > 1.0) && is_on(value) => {
                self.unsupported(name, value, field);
            }
            Effect::Inexact(how) if is_on(value) => self.inexact(name, value, how),
            _ => self.without_effect.push(name.to_string()),
        }
        Ok(())
    }

    /// Takes a key that the table lacks: one of `TrainingArguments`, or an unknown one.
    fn take_other(&mut self, name: &str, value: &Value) -> Result<()> {
        let effect = match self.with_arguments {
            true => self.args.take_one(name, value, self.file)?,
            false => hf_args::Effect::Unknown,
        };
        match effect {
            hf_args::Effect::Without => self.without_effect.push(name.to_string()),
            hf_args::Effect::Counted => {}
            hf_args::Effect::Unknown => {
                let all = self.table.iter().flat_map(|(_, names)| names.iter().copied());
                let all = all.chain(hf_args::names().filter(|_| self.with_arguments));
                self.args.unknown.push(format!("{name}{}", nearly(name, all)));
            }
        }
        Ok(())
    }

    pub(super) fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.args.fields.insert(field.into(), value.into());
    }

    /// Sets a field unless a key did.
    pub(super) fn default(&mut self, field: &str, value: impl Into<Value>) {
        self.args.fields.entry(field).or_insert_with(|| value.into());
    }

    pub(super) fn unsupported(&mut self, name: &str, value: &Value, field: Option<&'static str>) {
        self.args.refusals.push(Refused { argument: said(name, value), field });
    }

    pub(super) fn inexact(&mut self, name: &str, value: &Value, how: &str) {
        self.args.left_out.push(format!("{} ({how})", said(name, value)));
    }

    /// Takes what divides a step among cards, as ZeRO does in this stage. How many cards there are stands in no recipe: `data-parallel` says it.
    pub(super) fn sharded(&mut self, name: &str, value: &Value, stage: u64) {
        self.unsupported(name, value, Some("data-parallel"));
        self.set("zero", stage);
    }

    /// Takes PyTorch's FSDP as the stage of ZeRO that divides the same.
    pub(super) fn fsdp(&mut self, name: &str, value: &Value, stage: u64) {
        self.sharded(name, value, stage);
        let how = "FSDP (counted as DeepSpeed's ZeRO, which keeps float32 weights beside those of 16 bits)";
        if !self.args.left_out.iter().any(|known| known == how) {
            self.note(how);
        }
    }

    /// Takes a configuration of DeepSpeed by its file's name, where trainers write the stage of ZeRO: `zero2.json`, `ds_z3_config.json`. One that moves
    /// parts to the host, or whose stage no name says, is not supported.
    pub(super) fn deepspeed(&mut self, name: &str, value: &Value) {
        let path = value.as_str().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        let stage = [1, 2, 3].into_iter().find(|stage| {
            [format!("zero{stage}"), format!("z{stage}"), format!("zero_stage{stage}")]
                .iter()
                .any(|word| file.contains(word))
        });
        match stage.filter(|_| !file.contains("offload") && !file.contains("torch_compile")) {
            Some(stage) => self.sharded(name, value, stage),
            None => self.unsupported(name, value, Some("data-parallel")),
        }
    }

    /// Takes a loss that never has the scores of all tokens beside each other: it is counted in parts that backward computes again. Measured with
    /// Liger's fused loss of Llama-3.2-1B, the peak is the same.
    pub(super) fn fused_loss(&mut self, name: &str, value: &Value) {
        self.default("loss", FUSED_LOSS);
        self.inexact(
            name,
            value,
            "counted as --loss chunked:32, which computes output layer and loss again in 32 parts",
        );
    }

    /// Takes checkpointing of the reentrant kind, which is counted as the other one. With 8-bit weights that keeps what bitsandbytes holds outside of saved
    /// tensors, and takes three times as much for Llama 3 8B at batch 2 and 4,096 tokens (74.7 GiB; axolotl 0.19, rehearsed: 23.1): it is not supported.
    pub(super) fn reentrant(&mut self, whose: &str, is_of_8_bits: bool) {
        if is_of_8_bits {
            let name = "gradient checkpointing with 8-bit weights and use_reentrant";
            return self.unsupported(name, &Value::Bool(true), Some("checkpoint"));
        }
        self.note(format!("gradient checkpointing with use_reentrant=True, {whose} (counted as False)"));
    }

    /// Adds a sentence that stands for no single key.
    pub(super) fn note(&mut self, how: impl Into<String>) {
        self.args.left_out.push(how.into());
    }

    /// Sets the largest norm of the gradients; with 0 they are not clipped.
    pub(super) fn clip(&mut self, norm: f64) {
        self.args.clip(norm);
    }

    /// Takes the variables of the environment that the trainer sets: those of PyTorch's allocator.
    pub(super) fn environment(&mut self, variables: &Keys<'_>) {
        let names = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];
        if let Some(settings) = names.iter().find_map(|name| variables.text(name)) {
            self.set("alloc-conf", settings);
        }
    }

    /// Sets the adapters of PEFT, with the options that are on.
    pub(super) fn adapters(&mut self, keys: &Keys<'_>, rank: u64, target: Option<String>, dropout: Option<f64>) {
        self.set("lora", rank);
        for switch in
            LORA_SWITCHES.iter().filter(|switch| [switch.peft, switch.axolotl].iter().any(|name| keys.is_on(name)))
        {
            self.set(switch.field, true);
        }
        let saved: Vec<String> = SAVED_MODULES.iter().flat_map(|name| keys.texts(name)).collect();
        if !saved.is_empty() {
            self.set("modules-to-save", saved.join(","));
        }
        if let Some(target) = target {
            self.set("lora-target", target);
        }
        if let Some(dropout) = dropout.filter(|dropout| *dropout > 0.0) {
            self.set("lora-dropout", dropout);
        }
    }

    /// Returns the layers with adapters from a key that lists names, or that is one regular expression of PEFT.
    pub(super) fn targets_or_pattern(&mut self, keys: &Keys<'_>, name: &str) -> Option<String> {
        match keys.text(name).filter(|text| is_pattern(text)) {
            Some(pattern) => Some(pattern.into()),
            None => self.targets(keys, name),
        }
    }

    /// Returns the layers with adapters from a key that lists names. A regular expression is an error.
    pub(super) fn targets(&mut self, keys: &Keys<'_>, name: &str) -> Option<String> {
        let value = keys.value(name)?;
        let names = keys.texts(name);
        if names.iter().any(|name| is_pattern(name)) || value.as_str().is_some_and(is_pattern) {
            self.unsupported(name, value, Some("lora-target"));
            return None;
        }
        (!names.is_empty()).then(|| names.join(","))
    }

    /// Sets the precision of weights of one type with products of another, under autocast.
    pub(super) fn precision(&mut self, key: &str, weights: &str, autocast: Option<&str>) {
        let word = match (weights, autocast) {
            ("float32", None) => "fp32",
            ("bfloat16", None) => "bf16",
            ("float16", None) => "fp16",
            ("float32", Some("bfloat16")) => "autocast-bf16",
            ("float32", Some("float16")) => "autocast-fp16",
            ("bfloat16", Some("bfloat16")) => "bf16-autocast-bf16",
            _ => {
                let argument = format!("{key}: {} products over {weights} weights", autocast.unwrap_or(weights));
                return self.args.refusals.push(Refused { argument, field: Some("precision") });
            }
        };
        self.set("precision", word);
    }

    pub(super) fn counted(mut self) -> Counted {
        self.args.unknown.sort_unstable();
        self.without_effect.sort_unstable();
        Counted { args: self.args, without_effect: self.without_effect }
    }
}
