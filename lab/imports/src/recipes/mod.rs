//! Reads recipes: the YAML files of axolotl, LLaMA-Factory, TRL, torchtune and ms-swift.
//!
//! Each trainer has a file with one table of its keys: which field of a run a key is, that it changes no memory, or that it changes memory and is not
//! supported. Where one key decides with others (types, adapters, optimizers), the trainer's `settle` reads them together. Keys that a trainer takes
//! from `TrainingArguments` are read by [`hf_args`](crate::hf_args). The names are those of axolotl 0.19 (`utils/schemas/`), LLaMA-Factory 0.9.5
//! (`hparams/`), TRL 1.16 (`SFTConfig`, `ModelConfig`, `ScriptArguments`), torchtune 0.6.1 (`recipes/configs/`) and ms-swift 4.6 (`arguments/`).
//! Reading executes nothing, and asks no network.

mod axolotl;
mod changed;
mod keys;
mod llama_factory;
mod llama_factory_v1;
mod optimizers;
mod swift;
mod torchtune;
mod trainer;
mod trl;

use std::path::Path;

use lab_base::error::{Error, Result};
use serde_json::{Map, Value};

use crate::hf_args::{Around, HfArgs, with_liger};
pub use keys::Counted;
use keys::{Keys, Table, Taken};
pub use trainer::Trainer;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// A recipe of one trainer.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The trainer.
    pub trainer: Trainer,
    /// The keys that tell which trainer it is.
    pub because: Vec<&'static str>,
    /// The network that it names: a name on the hub, or a folder.
    pub network: Option<String>,
    /// The command that the trainer is started with: program and arguments, with the file's path among them.
    pub command: Vec<String>,
    file: String,
    keys: Map<String, Value>,
}

impl Recipe {
    /// Reads a file; `None` if no trainer is recognised by its keys.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a file that cannot be read or is not YAML, or that is of a trainer but describes no training.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let file = path.display().to_string();
        let bytes = lab_base::files::bytes(path, MAX_BYTES, "a recipe")?;
        let text = String::from_utf8(bytes).map_err(|_| Error::usage(&file, "not a text in UTF-8"))?;
        Self::of_text(&file, &text)
    }

    /// Reads the text of a recipe; `file` is its name, for messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_text(file: &str, text: &str) -> Result<Option<Self>> {
        let value = serde_saphyr::from_str(text).map_err(|error| {
            let said = error.to_string();
            Error::usage(file, said.lines().next().unwrap_or_default())
        })?;
        let Value::Object(keys) = value else { return Ok(None) };
        Self::of_keys(file.into(), keys, text)
    }

    fn of_keys(file: String, keys: Map<String, Value>, text: &str) -> Result<Option<Self>> {
        let Some((trainer, because)) = trainer::recognised(&keys) else { return not_a_recipe(&file, &keys) };
        let all = Keys::new(&keys);
        if trainer == Trainer::Torchtune && all.value("optimizer").is_none() {
            let problem = "describes an evaluation, a generation or a quantization of torchtune, not a training";
            return Err(Error::usage(&file, problem));
        }
        let only_asks = ["do_predict", "do_eval"].iter().any(|name| all.is_on(name)) && !all.is_on("do_train");
        if trainer == Trainer::LlamaFactory && only_asks {
            return Err(Error::usage(&file, "describes an evaluation or an inference, not a training"));
        }
        let network = match trainer {
            Trainer::Axolotl => all.text("base_model").map(String::from),
            Trainer::LlamaFactory | Trainer::Trl => all.text("model_name_or_path").map(String::from),
            Trainer::LlamaFactoryV1 | Trainer::Swift => all.text("model").map(String::from),
            Trainer::Torchtune => torchtune::network(&all, text),
        };
        let command = match trainer {
            Trainer::Axolotl => vec!["axolotl", "train", &file],
            Trainer::LlamaFactory => vec!["llamafactory-cli", "train", &file],
            Trainer::LlamaFactoryV1 => vec!["llamafactory-cli", "sft", &file],
            Trainer::Trl => vec!["trl", trl::method(&all), "--config", &file],
            Trainer::Torchtune => vec!["tune", "run", torchtune::recipe(&all, text), "--config", &file],
            Trainer::Swift => vec!["swift", swift::method(&all), &file],
        };
        let command = command.into_iter().map(String::from).collect();
        Ok(Some(Self { trainer, because, network, command, file, keys }))
    }

    /// The keys of its trainer.
    fn table(&self) -> Table {
        match self.trainer {
            Trainer::Axolotl => axolotl::KEYS,
            Trainer::LlamaFactory => llama_factory::KEYS,
            Trainer::LlamaFactoryV1 => llama_factory_v1::KEYS,
            Trainer::Trl => trl::KEYS,
            Trainer::Torchtune => torchtune::KEYS,
            Trainer::Swift => swift::KEYS,
        }
    }

    /// True if the trainer takes keys of `TrainingArguments` besides its own.
    fn has_training_arguments(&self) -> bool {
        !matches!(self.trainer, Trainer::Torchtune | Trainer::LlamaFactoryV1)
    }

    /// Returns what the recipe means for a training that this program counts.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a key with a senseless value.
    pub fn counted(&self, around: &Around<'_>) -> Result<Counted> {
        let mut taken = Taken::new(&self.file, self.table(), self.has_training_arguments());
        taken.take(&self.keys)?;
        let keys = Keys::new(&self.keys);
        match self.trainer {
            Trainer::Axolotl => axolotl::settle(&keys, &mut taken)?,
            Trainer::LlamaFactory => llama_factory::settle(&keys, &mut taken)?,
            Trainer::LlamaFactoryV1 => llama_factory_v1::settle(&keys, around, &mut taken)?,
            Trainer::Trl => trl::settle(&keys, around, &mut taken)?,
            Trainer::Torchtune => torchtune::settle(&keys, &self.command[2], &mut taken)?,
            Trainer::Swift => swift::settle(&keys, around, &mut taken)?,
        }
        let mut counted = taken.counted();
        with_liger(&self.keys, around.config, &mut counted.args);
        match self.trainer {
            Trainer::Torchtune | Trainer::LlamaFactoryV1 => plain_loop(&mut counted.args),
            _ => around.with_trainer(&mut counted.args),
        }
        Ok(counted)
    }
}

/// The loop of torchtune, and of LLaMA-Factory's second version: a plain one that keeps only the loss.
fn plain_loop(args: &mut HfArgs) {
    args.fields.insert("keep".into(), "loss".into());
    args.fields.remove("weight-decay");
}

/// Says of which other program a file is that looks like a recipe.
fn not_a_recipe(file: &str, keys: &Map<String, Value>) -> Result<Option<Recipe>> {
    let has = |name: &str| keys.contains_key(name);
    if has("compute_environment") || has("distributed_type") && has("num_processes") {
        let problem = format!(
            "configures accelerate and names no network; vramlab predict -- accelerate launch --config_file {file} train.py rehearses a script with it"
        );
        return Err(Error::usage(file, problem));
    }
    let model = has("model") || has("model_name_or_path");
    if has("model") && has("micro_batch_size") {
        let problem = "a recipe of Megatron, whose keys vramlab does not know; with ms-swift installed: vramlab predict -- megatron sft";
        return Err(Error::usage(file, format!("{problem} {file}")));
    }
    if model && ["export_dir", "sampler_type", "infer_backend", "adapter_name_or_path"].iter().any(|name| has(name)) {
        return Err(Error::usage(file, "describes an export or an inference, not a training"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
