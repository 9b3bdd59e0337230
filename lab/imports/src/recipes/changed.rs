//! Changes of a run as keys of its recipe. What is shown was read back: with these keys the recipe is counted with these fields.

use lab_training::OptimizerKind;
use memcore::optim::Implementation;
use serde_json::{Map, Value, json};

use super::keys::Effect;
use super::{Recipe, Trainer};
use crate::hf_args::Around;

impl Recipe {
    /// Returns the keys that change a run of this recipe so, in a line; `None` if one of the fields has no key that vramlab knows.
    pub fn keys_for(&self, changed: &Map<String, Value>) -> Option<String> {
        let (mut keys, mut variables) = (Vec::new(), Vec::new());
        for (field, value) in changed {
            match (field.as_str(), value) {
                ("alloc-conf", Value::String(setting)) => variables.push(format!("PYTORCH_CUDA_ALLOC_CONF={setting}")),
                _ => keys.extend(self.keys_of(field, value)?),
            }
        }
        let mut with = self.clone();
        keys.iter().for_each(|(key, value)| drop(with.keys.insert((*key).into(), value.clone())));
        let counted = with.counted(&Around::default()).ok()?.args.fields;
        let is_so = |(field, value): (&String, &Value)| field == "alloc-conf" || counted.get(field) == Some(value);
        if !changed.iter().all(is_so) {
            return None;
        }
        let keys = keys
            .iter()
            .map(|(key, value)| format!("{key}: {}", value.as_str().map_or(value.to_string(), String::from)));
        Some(keys.chain(variables).collect::<Vec<_>>().join(", "))
    }

    /// The keys of one field: those of the trainer's own table, or else of `TrainingArguments`.
    fn keys_of(&self, field: &str, value: &Value) -> Option<Vec<(&'static str, Value)>> {
        let trainer = self.trainer;
        let own = self.table().iter().find(|(effect, _)| matches!(effect, Effect::Whole(known) if *known == field));
        if let Some(key) = own.and_then(|(_, names)| names.first()) {
            return Some(vec![(key, value.clone())]);
        }
        let on = |key: &'static str| Some(vec![(key, true.into())]);
        match field {
            "batch" if self.has_training_arguments() => Some(vec![("per_device_train_batch_size", value.clone())]),
            "accumulate" if self.has_training_arguments() => Some(vec![("gradient_accumulation_steps", value.clone())]),
            "sequence" if self.has_training_arguments() => Some(vec![("max_length", value.clone())]),
            "checkpoint" if value == "blocks" => match trainer {
                Trainer::LlamaFactory => Some(vec![("disable_gradient_checkpointing", false.into())]),
                Trainer::Torchtune => on("enable_activation_checkpointing"),
                _ => on("gradient_checkpointing"),
            },
            "load-in-4bit" => match trainer {
                Trainer::Axolotl => Some(vec![("load_in_4bit", true.into()), ("adapter", "qlora".into())]),
                Trainer::LlamaFactory => Some(vec![("quantization_bit", json!(4))]),
                Trainer::Trl => on("load_in_4bit"),
                _ => None,
            },
            "optimizer" => {
                let kind = OptimizerKind::parse(value.as_str()?).ok()?;
                let form = if kind.is_loop() { Implementation::Loop } else { Implementation::Foreach };
                let key = if trainer == Trainer::Axolotl { "optimizer" } else { "optim" };
                Some(vec![(key, kind.name_in_transformers(form)?.into())])
            }
            // It comes with the optimizer's name.
            "optimizer-impl" => Some(Vec::new()),
            "loss" if trainer == Trainer::Axolotl => {
                let chunks: u64 = value.as_str()?.strip_prefix("chunked:")?.parse().ok()?;
                Some(vec![("chunked_cross_entropy", true.into()), ("chunked_cross_entropy_num_chunks", chunks.into())])
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_in_the_keys_of_its_trainer_if_they_mean_it() {
        let said = |text: &str, changed: Value| {
            let recipe = Recipe::of_text("recipe.yaml", text).unwrap().unwrap();
            recipe.keys_for(changed.as_object().unwrap())
        };
        let axolotl = "base_model: gpt2\nmicro_batch_size: 4\nsequence_len: 512\ngradient_accumulation_steps: 2\nadapter: lora\nlora_r: 8\n\
                       lora_target_linear: true\noptimizer: adamw_torch\n";
        let keys = said(axolotl, json!({ "batch": 1, "accumulate": 8, "checkpoint": "blocks" }));
        assert_eq!(
            keys.as_deref(),
            Some("micro_batch_size: 1, gradient_accumulation_steps: 8, gradient_checkpointing: true")
        );
        let keys = said(axolotl, json!({ "load-in-4bit": true, "alloc-conf": "expandable_segments:True" }));
        assert_eq!(
            keys.as_deref(),
            Some("load_in_4bit: true, adapter: qlora, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
        );
        let keys = said(axolotl, json!({ "optimizer": "paged-adamw8bit", "optimizer-impl": "loop", "sequence": 256 }));
        assert_eq!(keys.as_deref(), Some("optimizer: paged_adamw_8bit, sequence_len: 256"));
        assert_eq!(said(axolotl, json!({ "save-on-cpu": "pinned" })), None, "it has no key that is known");
        let factory = "model_name_or_path: gpt2\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_target: all\ncutoff_len: 64\n\
                       per_device_train_batch_size: 4\n";
        let keys = said(factory, json!({ "batch": 2, "accumulate": 4, "load-in-4bit": true }));
        assert_eq!(
            keys.as_deref(),
            Some("per_device_train_batch_size: 2, gradient_accumulation_steps: 4, quantization_bit: 4")
        );
    }
}
