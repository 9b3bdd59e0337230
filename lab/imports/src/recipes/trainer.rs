//! The trainers, and by which keys their recipes are told apart.

use std::fmt;

use serde_json::{Map, Value};

use super::llama_factory_v1;

/// A program that trains as a YAML file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainer {
    /// axolotl.
    Axolotl,
    /// LLaMA-Factory.
    LlamaFactory,
    /// LLaMA-Factory's second version.
    LlamaFactoryV1,
    /// TRL's command line.
    Trl,
    /// torchtune.
    Torchtune,
    /// ms-swift.
    Swift,
}

impl Trainer {
    /// Name of the package of Python, as its installed metadata spells it.
    pub fn package(self) -> &'static str {
        match self {
            Self::Axolotl => "axolotl",
            Self::LlamaFactory | Self::LlamaFactoryV1 => "llamafactory",
            Self::Trl => "trl",
            Self::Torchtune => "torchtune",
            Self::Swift => "ms_swift",
        }
    }
}

impl fmt::Display for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Axolotl => "axolotl",
            Self::LlamaFactory => "LLaMA-Factory",
            Self::LlamaFactoryV1 => "LLaMA-Factory's second version (USE_V1=1)",
            Self::Trl => "TRL",
            Self::Torchtune => "torchtune",
            Self::Swift => "ms-swift",
        })
    }
}

/// Keys of a trainer by which its recipes are told: the one that names the network, and further ones, of which one must be there.
struct Marks {
    trainer: Trainer,
    network: &'static str,
    others: &'static [&'static str],
    /// Keys of other programs with the same names.
    never: &'static [&'static str],
}

#[rustfmt::skip]
const MARKS: [Marks; 4] = [
    Marks {
        trainer: Trainer::Axolotl,
        network: "base_model",
        others: &["micro_batch_size", "sequence_len", "adapter", "sample_packing", "datasets", "pretraining_dataset"],
        never: &[],
    },
    Marks {
        trainer: Trainer::LlamaFactory,
        network: "model_name_or_path",
        others: &["finetuning_type", "stage", "cutoff_len", "template", "lora_target", "pure_bf16", "quantization_bit", "dataset_dir"],
        never: &["export_dir", "infer_backend", "model_class", "train_dataset"],
    },
    Marks {
        trainer: Trainer::Swift,
        network: "model",
        others: &["tuner_type", "train_type", "rlhf_type", "split_dataset_ratio", "attn_impl", "target_modules", "quant_bits", "torch_dtype", "template",
            "system", "dataset", "lora_rank", "max_length"],
        never: &["model_class", "train_dataset", "infer_backend", "sample_backend", "export_dir", "micro_batch_size", "sampler_type"],
    },
    Marks {
        trainer: Trainer::Trl,
        network: "model_name_or_path",
        others: &["dataset_name", "datasets", "dataset_mixer", "dataset_mixture", "dataset_text_field", "dataset_train_split", "use_peft", "lora_r", "packing", "max_length",
            "chat_template_path", "eos_token", "completion_only_loss", "assistant_only_loss", "num_generations", "max_completion_length", "beta"],
        // The scripts of transformers itself.
        never: &["do_train", "train_file", "block_size", "model_class", "train_dataset"],
    },
];

/// Returns the trainer of a recipe, and the keys that tell it.
pub(super) fn recognised(keys: &Map<String, Value>) -> Option<(Trainer, Vec<&'static str>)> {
    let of_torchtune = |value: &Value| {
        let component = value.get("_component_").and_then(Value::as_str);
        component.is_some_and(|component| component.starts_with("torchtune."))
    };
    let parts = ["model", "tokenizer", "checkpointer", "loss", "dataset"];
    let found: Vec<_> = parts.into_iter().filter(|part| keys.get(*part).is_some_and(of_torchtune)).collect();
    if !found.is_empty() {
        return Some((Trainer::Torchtune, vec!["_component_"]));
    }
    if llama_factory_v1::is_it(|name| keys.contains_key(name)) {
        let parts = ["model", "model_class", "train_dataset"];
        let found = parts.into_iter().filter(|name| keys.contains_key(*name)).collect();
        return Some((Trainer::LlamaFactoryV1, found));
    }
    MARKS.iter().find_map(|marks| {
        let has = |name: &&&str| keys.contains_key(**name);
        let others: Vec<_> = marks.others.iter().filter(has).copied().collect();
        let is_it =
            keys.contains_key(marks.network) && !others.is_empty() && !marks.never.iter().any(|name| has(&name));
        is_it.then(|| (marks.trainer, std::iter::once(marks.network).chain(others.into_iter().take(3)).collect()))
    })
}
