//! Recipes of LLaMA-Factory's second version (`USE_V1=1`), whose keys are other ones (`src/llamafactory/v1/config/`).

use lab_base::error::Result;
use serde_json::Value;

use super::keys::Effect::{AboveOne, Inexact, Nothing, Number, Read, Unsupported, Whole};
use super::keys::{Keys, Table, Taken};
use super::optimizers;
use crate::hf_args::Around;

/// What it takes unless the recipe says.
const SEQUENCE: u64 = 2048;
const RANK: u64 = 8;
const DROPOUT: f64 = 0.05;
const CLIP: f64 = 1.0;

#[rustfmt::skip]
pub(super) const KEYS: Table = &[
    (Whole("batch"), &["micro_batch_size"]),
    (Whole("sequence"), &["cutoff_len"]),
    (Whole("seed"), &["seed"]),
    (Number("lr"), &["learning_rate"]),
    (Read, &[
        "model", "model_class", "peft_config", "dist_config", "optim_config", "quant_config", "kernel_config", "flash_attn", "bf16",
        "enable_activation_checkpointing", "max_grad_norm", "train_dataset",
    ]),
    (AboveOne(Some("data-parallel")), &["cp_size", "mp_replicate_size", "mp_shard_size"]),
    (Unsupported(None), &["pref_loss", "pref_beta", "pref_ftx", "simpo_gamma", "dpo_label_smoothing", "ld_alpha"]),
    (Inexact("evaluation is not counted"), &["eval_dataset"]),
    (Inexact("one card's share of it is --accumulate"), &["global_batch_size"]),
    (Inexact("rows of packed texts are counted full"), &["batching_strategy"]),
    (Nothing, &[
        "output_dir", "trust_remote_code", "custom_chat_template", "init_config", "num_train_epochs", "max_steps", "batching_workers", "dp_size", "cp_mode",
        "dist_timeout", "lr_scheduler_config", "full_determinism", "resume_from_checkpoint", "save_steps", "save_epochs", "save_ckpt_as_hf",
        "save_total_limit", "logging_steps", "sample_backend", "max_new_tokens",
    ]),
];

/// True if the keys are of the second version.
pub(super) fn is_it(has: impl Fn(&str) -> bool) -> bool {
    has("model") && !has("export_dir") && (has("model_class") || has("train_dataset"))
}

/// Reads the keys that decide together.
pub(super) fn settle(keys: &Keys<'_>, around: &Around<'_>, taken: &mut Taken<'_>) -> Result<()> {
    taken.default("batch", 1);
    taken.default("sequence", SEQUENCE);
    taken.clip(keys.number("max_grad_norm").unwrap_or(CLIP));
    if let Some(class) = keys.text("model_class").filter(|class| *class != "llm") {
        taken.unsupported("model_class", &class.into(), Some("head"));
    }
    if let Some(pairs) = keys.text("train_dataset").filter(|name| name.contains("dpo")) {
        taken.unsupported("train_dataset", &pairs.into(), None);
    }
    let optimizer = keys.inner("optim_config");
    optimizers::set(taken, "optim_config.name", &optimizer.text("name").unwrap_or("adamw_torch").into());
    tuned(&keys.inner("peft_config"), taken);
    quantized(&keys.inner("quant_config"), taken);
    divided(&keys.inner("dist_config"), taken);
    let weights = around.saved_type().unwrap_or("bfloat16");
    let wants_products = keys.value("bf16").is_none_or(|value| *value != Value::Bool(false)) && weights == "float32";
    taken.precision("bf16", weights, wants_products.then_some("bfloat16"));
    if keys.value("enable_activation_checkpointing").is_none_or(|value| *value == Value::Bool(true)) {
        taken.set("checkpoint", "blocks");
    }
    match keys.text("flash_attn").unwrap_or("sdpa") {
        name @ ("eager" | "sdpa") => taken.set("attention", name),
        other => taken.note(format!("flash_attn={other} (counted as sdpa, whose kernel keeps the same tensors)")),
    }
    if let Some(kernels) = keys.inner("kernel_config").text("name").filter(|name| *name != "auto") {
        taken.inexact("kernel_config.name", &kernels.into(), "fused kernels need less");
    }
    taken.note("cutoff_len (every example is counted as long as the longest that the recipe allows)");
    Ok(())
}

/// Adapters of PEFT.
fn tuned(config: &Keys<'_>, taken: &mut Taken<'_>) {
    match config.text("name") {
        None => {}
        Some("lora") if config.value("adapter_name_or_path").is_none() => {
            let target = match config.text("target_modules").unwrap_or("all") {
                "all" if !config.value("target_modules").is_some_and(Value::is_array) => Some("all-linear".to_string()),
                _ => taken.targets(config, "target_modules"),
            };
            let dropout = config.number("lora_dropout").unwrap_or(DROPOUT);
            taken.adapters(config, config.whole("r").unwrap_or(RANK), target, Some(dropout));
        }
        Some("lora") => taken.unsupported("peft_config.adapter_name_or_path", &true.into(), Some("lora")),
        Some(other) => {
            let field = if other == "freeze" { "freeze" } else { "lora" };
            taken.unsupported("peft_config.name", &other.into(), Some(field));
        }
    }
}

/// Weights of 4 or 8 bits by bitsandbytes.
fn quantized(config: &Keys<'_>, taken: &mut Taken<'_>) {
    match (config.text("name"), config.whole("quantization_bit")) {
        (None, _) | (_, None) => {}
        (Some("auto" | "bnb"), Some(4)) => {
            taken.set("load-in-4bit", true);
            if config.value("double_quantization").is_none_or(|value| *value == Value::Bool(true)) {
                taken.set("double-quant", true);
            }
        }
        (Some("auto" | "bnb"), Some(8)) => taken.set("load-in-8bit", true),
        (Some(other), _) => taken.unsupported("quant_config.name", &other.into(), Some("load-in-4bit")),
    }
}

/// FSDP2 and DeepSpeed.
fn divided(config: &Keys<'_>, taken: &mut Taken<'_>) {
    match config.text("name") {
        None => {}
        Some("fsdp2") => taken.fsdp("dist_config.name", &"fsdp2".into(), 3),
        Some("deepspeed") => {
            let file = config.text("config_file").unwrap_or_default();
            taken.deepspeed("dist_config.config_file", &file.into());
        }
        Some(other) => taken.unsupported("dist_config.name", &other.into(), Some("data-parallel")),
    }
}
