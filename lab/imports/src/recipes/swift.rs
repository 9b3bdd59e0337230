//! Recipes of ms-swift.

use lab_base::error::Result;
use serde_json::Value;

use super::keys::Effect::{AboveOne, Inexact, Nothing, Read, Unsupported};
use super::keys::{Keys, Table, Taken};
use super::optimizers;
use crate::hf_args::{Around, is_on};

/// What ms-swift takes unless the recipe says: examples of a step, rank and dropout of adapters.
const EXAMPLES: u64 = 16;
const RANK: u64 = 8;
const DROPOUT: f64 = 0.05;

#[rustfmt::skip]
pub(super) const KEYS: Table = &[
    (Read, &[
        "model", "max_length", "tuner_type", "train_type", "lora_rank", "lora_dropout", "target_modules", "quant_bits", "quant_method", "torch_dtype",
        "bf16", "fp16", "gradient_checkpointing", "attn_impl", "optim", "gradient_accumulation_steps", "ENV", "env", "packing", "eval_strategy",
        "rlhf_type", "deepspeed",
        "freeze_parameters", "bnb_4bit_use_double_quant",
    ]),
    (Unsupported(Some("data-parallel")), &["fsdp", "use_ray", "device_groups"]),
    (AboveOne(Some("data-parallel")), &[
        "sequence_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size",
        "context_parallel_size", "deepspeed_autotp_size",
    ]),
    (Unsupported(None), &[
        "target_regex", "target_parameters", "lora_dtype", "use_galore",
        "lisa_activated_layers", "tuner_backend", "ref_model", "reward_model", "teacher_model", "use_vllm", "optimizer", "adapters",
        "sequence_parallel", "external_plugins", "custom_register_path", "num_generations",
    ]),
    (Unsupported(Some("freeze")), &[
        "freeze_parameters_regex", "freeze_parameters_ratio", "trainable_parameters", "trainable_parameters_regex", "freeze_llm",
    ]),
    (Inexact("fused kernels need less"), &["use_liger_kernel"]),
    (Inexact("pictures are counted as the class's own sizes"), &["max_pixels", "vit_gradient_checkpointing", "freeze_vit", "freeze_aligner"]),
    (Inexact("rows without padding are counted full"), &["padding_free"]),
    (Inexact("evaluation is not counted"), &["split_dataset_ratio", "val_dataset"]),
    (Inexact("the setting is not counted"), &[
        "rope_scaling", "max_memory", "device_map", "model_kwargs", "experts_impl", "new_special_tokens", "num_labels", "lorap_lr_ratio",
        "router_aux_loss_coef", "enable_dft_loss", "enable_channel_loss", "loss_type", "use_logits_to_keep", "task_type", "lora_bias",
    ]),
    (Nothing, &[
        "model_type", "model_revision", "max_model_len", "local_repo_path", "template", "system", "truncation_strategy", "agent_template",
        "norm_bbox", "use_chat_template", "padding_side", "loss_scale", "template_backend", "response_prefix", "enable_thinking",
        "preserve_thinking", "add_non_thinking_prefix", "dataset", "cached_dataset", "cached_val_dataset", "dataset_num_proc",
        "load_from_cache_file", "dataset_shuffle", "val_dataset_shuffle", "streaming", "interleave_prob", "stopping_strategy",
        "shuffle_buffer_size", "download_mode", "columns", "strict", "model_name", "model_author", "custom_dataset_info", "packing_length",
        "packing_num_proc", "packing_strategy", "lazy_tokenize", "use_hf", "hub_token", "ignore_args_error", "load_args", "load_data_args",
        "add_version", "create_checkpoint_symlink", "lora_alpha", "init_weights", "init_strategy", "safe_serialization",
        "max_shard_size", "check_model", "acc_strategy", "train_dataloader_shuffle", "max_epochs", "aligner_lr", "vit_lr", "resume_only_model",
        "eval_metric", "callbacks", "early_stop_interval", "lisa_step_interval", "use_flash_ckpt", "swanlab_token", "swanlab_project",
        "swanlab_workspace", "swanlab_exp_name", "swanlab_mode", "max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty",
        "num_beams", "stop_words", "stream", "bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "beta",
    ]),
];

/// Returns the command of ms-swift that takes these keys.
pub(super) fn method(keys: &Keys<'_>) -> &'static str {
    match keys.value("rlhf_type") {
        Some(_) => "rlhf",
        None if keys.value("use_chat_template") == Some(&Value::Bool(false)) => "pt",
        None => "sft",
    }
}

/// Reads the keys that decide together.
pub(super) fn settle(keys: &Keys<'_>, around: &Around<'_>, taken: &mut Taken<'_>) -> Result<()> {
    let batch = keys.whole("per_device_train_batch_size").unwrap_or(1).max(1);
    taken.set("batch", batch);
    taken.set("accumulate", keys.whole("gradient_accumulation_steps").unwrap_or(EXAMPLES.div_ceil(batch)));
    match keys.whole("max_length") {
        Some(length) => taken.set("sequence", length),
        None => taken.note("max_length is not set (--sequence says how many tokens an example has)"),
    }
    optimizers::set(taken, "optim", keys.value("optim").unwrap_or(&"adamw_torch_fused".into()));
    let (key, kind) = match keys.text("train_type") {
        Some(kind) => ("train_type", kind),
        None => ("tuner_type", keys.text("tuner_type").unwrap_or("lora")),
    };
    match kind {
        "full" => {
            // Beginnings of names.
            let names: Vec<String> = keys.texts("freeze_parameters").iter().map(|name| format!("{name}*")).collect();
            if !names.is_empty() {
                taken.set("freeze", names.join(","));
            }
        }
        "lora" => {
            let target = match keys.value("target_modules") {
                None => Some("all-linear".to_string()),
                Some(_) => taken.targets(keys, "target_modules"),
            };
            let dropout = keys.number("lora_dropout").unwrap_or(DROPOUT);
            taken.adapters(keys, keys.whole("lora_rank").unwrap_or(RANK), target, Some(dropout));
        }
        other => taken.unsupported(key, &other.into(), Some("lora")),
    }
    if let Some(kind) = keys.value("rlhf_type") {
        taken.unsupported("rlhf_type", kind, None);
    }
    if let Some(value) = keys.value("deepspeed").filter(|value| is_on(value)) {
        taken.deepspeed("deepspeed", value);
    }
    quantized(keys, taken);
    types(keys, around, taken);
    if keys.value("gradient_checkpointing").is_none_or(|value| *value == Value::Bool(true)) {
        taken.set("checkpoint", "blocks");
    }
    match keys.text("attn_impl") {
        Some(name @ ("eager" | "sdpa")) => taken.set("attention", name),
        Some(other) => taken.note(format!("attn_impl={other} (counted as sdpa, whose kernel keeps the same tensors)")),
        None => {}
    }
    taken.environment(&keys.inner("ENV"));
    taken.note(match keys.is_on("packing") {
        true => "packing=true (rows of packed texts are counted full)",
        false => "max_length (every example is counted as long as the longest that the recipe allows)",
    });
    Ok(())
}

/// Weights of 4 or 8 bits.
fn quantized(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let Some(bits) = keys.value("quant_bits") else { return };
    let by_bnb = keys.text("quant_method").is_none_or(|method| method == "bnb");
    match bits.as_u64() {
        Some(4) if by_bnb => {
            taken.set("load-in-4bit", true);
            // ms-swift's own default.
            if keys.value("bnb_4bit_use_double_quant").is_none_or(|value| *value == Value::Bool(true)) {
                taken.set("double-quant", true);
            }
        }
        Some(8) if by_bnb => taken.set("load-in-8bit", true),
        _ => taken.unsupported("quant_bits", bits, Some("load-in-4bit")),
    }
}

/// ms-swift loads the type of the file, else bfloat16, and trains under autocast in it.
fn types(keys: &Keys<'_>, around: &Around<'_>, taken: &mut Taken<'_>) {
    let weights = keys.text("torch_dtype").or(around.saved_type()).unwrap_or("bfloat16");
    let products = match (keys.value("bf16"), keys.value("fp16")) {
        (Some(Value::Bool(true)), _) => Some("bfloat16"),
        (_, Some(Value::Bool(true))) => Some("float16"),
        (Some(Value::Bool(false)), _) => None,
        _ if weights == "bfloat16" => Some("bfloat16"),
        _ => Some("float16"),
    };
    taken.precision("torch_dtype", weights, products);
}
