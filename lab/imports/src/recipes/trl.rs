//! Recipes of TRL's command line.

use lab_base::error::Result;
use serde_json::Value;

use super::keys::Effect::{Inexact, Nothing, Read, Unsupported};
use super::keys::{Keys, Table, Taken};
use super::optimizers;
use crate::hf_args::Around;

/// What TRL takes unless the recipe says.
const SEQUENCE: u64 = 1024;
const RANK: u64 = 16;
const DROPOUT: f64 = 0.05;

#[rustfmt::skip]
pub(super) const KEYS: Table = &[
    (Read, &[
        "model_name_or_path", "max_length", "max_seq_length", "use_peft", "lora_r", "lora_dropout", "lora_target_modules", "load_in_4bit",
        "load_in_8bit", "dtype", "torch_dtype", "bf16", "fp16", "gradient_checkpointing", "attn_implementation", "optim", "env", "packing",
        "eval_strategy", "padding_free", "method", "use_bnb_nested_quant",
    ]),
    (Unsupported(Some("data-parallel")), &["accelerate_config", "num_processes", "fsdp", "deepspeed"]),
    (Unsupported(None), &[
        "lora_target_parameters", "activation_offloading", "num_generations", "max_completion_length", "beta",
        "reward_funcs", "reward_model_name_or_path", "precompute_ref_log_probs", "model_init_kwargs", "rpo_alpha", "desirable_weight",
        "center_rewards_coefficient",
    ]),
    (Inexact("fused kernels need less"), &["use_liger_kernel"]),
    (Inexact("its own loss is counted as cross entropy"), &["loss_type"]),
    (Inexact("the setting is not counted"), &["router_aux_loss_coef", "bnb_4bit_quant_storage", "chat_template_path"]),
    (Nothing, &[
        "dataset_name", "dataset_mixer", "dataset_mixture", "dataset_splits", "dataset_configs", "chat_template", "auto_insert_empty_system_msg",
        "max_prompt_length", "system_prompt", "benchmarks", "callbacks", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_streaming", "datasets", "streaming",
        "test_split_size", "dataset_text_field", "dataset_kwargs", "dataset_num_proc", "eos_token", "pad_token", "truncation_mode",
        "shuffle_dataset", "packing_strategy", "pad_to_multiple_of", "eval_packing", "completion_only_loss", "assistant_only_loss",
        "model_revision", "trust_remote_code", "lora_alpha", "lora_task_type", "bnb_4bit_quant_type", "ignore_bias_buffers",
        "gradient_checkpointing_use_reentrant",
    ]),
];

/// Returns the command of TRL that takes these keys.
pub(super) fn method(keys: &Keys<'_>) -> &'static str {
    let any = |names: &[&str]| names.iter().any(|name| keys.value(name).is_some());
    if any(&["num_generations", "max_completion_length", "reward_funcs"]) {
        "grpo"
    } else if any(&["desirable_weight", "undesirable_weight"]) {
        "kto"
    } else if any(&["beta", "precompute_ref_log_probs", "rpo_alpha", "loss_weights"]) {
        "dpo"
    } else if any(&["center_rewards_coefficient"]) {
        "reward"
    } else {
        "sft"
    }
}

/// Reads the keys that decide together.
pub(super) fn settle(keys: &Keys<'_>, around: &Around<'_>, taken: &mut Taken<'_>) -> Result<()> {
    taken.default("batch", 8);
    let length = keys.whole("max_length").or_else(|| keys.whole("max_seq_length"));
    taken.set("sequence", length.unwrap_or(SEQUENCE));
    optimizers::set(taken, "optim", keys.value("optim").unwrap_or(&"adamw_torch_fused".into()));
    if keys.is_on("use_peft") {
        let target = taken.targets(keys, "lora_target_modules");
        let dropout = keys.number("lora_dropout").unwrap_or(DROPOUT);
        taken.adapters(keys, keys.whole("lora_r").unwrap_or(RANK), target, Some(dropout));
    }
    for (key, field) in [("load_in_4bit", "load-in-4bit"), ("load_in_8bit", "load-in-8bit")] {
        if keys.is_on(key) {
            taken.set(field, true);
        }
    }
    if keys.is_on("load_in_4bit") && keys.is_on("use_bnb_nested_quant") {
        taken.set("double-quant", true);
    }
    types(keys, around, taken);
    if keys.value("gradient_checkpointing").is_none_or(|value| *value == Value::Bool(true)) {
        taken.set("checkpoint", "blocks");
    }
    match keys.text("attn_implementation") {
        Some(name @ ("eager" | "sdpa")) => taken.set("attention", name),
        Some(other) => {
            taken.note(format!("attn_implementation={other} (counted as sdpa, whose kernel keeps the same tensors)"))
        }
        None => {}
    }
    if keys.text("eval_strategy").is_some_and(|when| when != "no") {
        taken.note("eval_strategy (evaluation is not counted)");
    }
    taken.environment(&keys.inner("env"));
    taken.note(
        "the loss (counted with the scores of all tokens, which SFTTrainer of TRL 1.16 makes in tiles: rehearsed, it allocated 459.6 MiB where vramlab \
         counts 1.02 GiB, of 4 × 512 tokens and 32 000 words)",
    );
    taken.note(match keys.is_on("packing") {
        true => "packing=true (rows of packed texts are counted full)",
        false => "max_length (every example is counted as long as the longest that the recipe allows)",
    });
    Ok(())
}

/// TRL loads float32 unless told, and trains under autocast in bfloat16 unless told.
fn types(keys: &Keys<'_>, around: &Around<'_>, taken: &mut Taken<'_>) {
    let named = keys.text("dtype").or_else(|| keys.text("torch_dtype")).unwrap_or("float32");
    let of_file = around.saved_type();
    let weights = match named.trim_start_matches("torch.") {
        "auto" => of_file.unwrap_or("float32"),
        named => named,
    };
    let products = match (keys.is_on("fp16"), keys.value("bf16")) {
        (true, _) => Some("float16"),
        (false, Some(Value::Bool(false))) => None,
        (false, _) => Some("bfloat16"),
    };
    taken.precision("dtype", weights, products);
}
