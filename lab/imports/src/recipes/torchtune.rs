//! Recipes of torchtune.

use std::path::Path;

use lab_base::error::Result;
use serde_json::Value;

use super::keys::Effect::{AboveOne, Inexact, Nothing, Number, Read, Unsupported, Whole};
use super::keys::{Keys, Table, Taken};
use super::optimizers;

#[rustfmt::skip]
pub(super) const KEYS: Table = &[
    (Whole("batch"), &["batch_size"]),
    (Whole("accumulate"), &["gradient_accumulation_steps"]),
    (Whole("seed"), &["seed"]),
    (Number("clip-grad-norm"), &["clip_grad_norm"]),
    (Read, &["model", "tokenizer", "checkpointer", "dataset", "optimizer", "loss", "dtype", "enable_activation_checkpointing", "optimizer_in_bwd", "enable_activation_offloading"]),
    (Unsupported(Some("data-parallel")), &["fsdp", "tensor_parallel_plan"]),
    (Inexact("layers that are sharded alone are counted as the rest is"), &["custom_sharded_layers"]),
    (AboveOne(Some("data-parallel")), &[
        "tensor_parallel_dim", "data_parallel_shard_dim", "data_parallel_replicate_dim", "context_parallel_dim",
    ]),
    (Unsupported(None), &[
        "quantizer", "teacher_model", "teacher_checkpointer", "kd_loss", "policy_model",
        "reward_and_value_model", "ref_checkpointer", "ref_policy_checkpointer", "value_checkpointer", "reward_checkpointer", "grpo_samples",
        "reward_functions", "ppo_epochs", "tasks", "prompt", "orchestration", "inference", "training", "postprocessing", "ac_mode", "enable_fp8_training",
        "fsdp_cpu_offload",
    ]),
    (Inexact("counted without it: compiled, nanoGPT needed 27 % less"), &["compile"]),
    (Inexact("evaluation is not counted"), &["run_val_every_n_steps"]),
    (Nothing, &[
        "output_dir", "device", "log_level", "resume_from_checkpoint", "metric_logger", "log_every_n_steps", "log_peak_memory_stats", "shuffle",
        "epochs", "max_steps_per_epoch", "profiler", "lr_scheduler", "save_adapter_weights_only", "dataset_val", "batch_size_val", "low_cpu_ram",
        "collate_fn", "kd_ratio", "save_every_n_epochs", "name", "memory_efficient_fsdp_wrap", "ac_option", "use_distributed_state_dict",
        "base_model_path", "max_seq_length", "temperature", "top_k", "max_new_tokens", "enable_kv_cache", "limit", "apply_chat_template",
        "forward_batch_size", "max_generated_tokens", "num_steps", "ppo_batch_size", "min_response_length", "penalise_no_eos", "reward_penalty",
        "stop_token_ids", "whiten_rewards", "gamma", "lmbda", "kl_coeff", "cudnn_deterministic_mode", "use_flex", "debug_logging_enabled",
        "debug_num_samples_per_step", "dataloader", "datasets",
    ]),
];

/// Layers with adapters: their names in torchtune, and in the classes of transformers.
const LAYERS: [(&str, &str); 4] =
    [("q_proj", "q_proj"), ("k_proj", "k_proj"), ("v_proj", "v_proj"), ("output_proj", "o_proj")];

/// Reads the keys that decide together. `recipe`: that of torchtune which takes the file.
pub(super) fn settle(keys: &Keys<'_>, recipe: &str, taken: &mut Taken<'_>) -> Result<()> {
    taken.default("batch", 1);
    if recipe.contains("distributed") {
        // Its recipes wrap each layer by FSDP2, which shards parameters, gradients and states.
        taken.fsdp("tune run", &recipe.into(), 3);
    }
    taken.note("the network is counted as transformers computes it, not as torchtune's own modules do");
    if keys.value("model").is_none() {
        taken.unsupported("model", &"none: it describes no training of one network".into(), None);
    }
    model(&keys.inner("model"), taken);
    optimizer(&keys.inner("optimizer"), taken);
    match keys.text("dtype") {
        Some("fp32" | "float32") => taken.precision("dtype", "float32", None),
        Some("bf16" | "bfloat16") => taken.precision("dtype", "bfloat16", None),
        Some(_) => taken.unsupported("dtype", keys.value("dtype").unwrap_or(&Value::Null), Some("precision")),
        None => {}
    }
    if keys.is_on("optimizer_in_bwd") {
        taken.set("step-in-backward", true);
    }
    match keys.value("enable_activation_offloading").filter(|_| keys.is_on("enable_activation_offloading")) {
        Some(value) if recipe.contains("distributed") => taken.unsupported("enable_activation_offloading", value, None),
        Some(value) => {
            taken.set("save-on-cpu", "pinned");
            let how = "counted as --save-on-cpu=pinned; torchtune's own keeps tensors below 1 KiB, and a few for a moment longer";
            taken.inexact("enable_activation_offloading", value, how);
        }
        None => {}
    }
    if keys.is_on("enable_activation_checkpointing") {
        taken.set("checkpoint", "blocks");
    }
    match keys.inner("tokenizer").whole("max_seq_len") {
        Some(length) => taken.set("sequence", length),
        None => taken.note("tokenizer.max_seq_len is not set (--sequence says how many tokens an example has)"),
    }
    let loss = keys.inner("loss").text("_component_").unwrap_or_default().to_string();
    if loss.contains("Linear") || loss.contains("Chunked") {
        let last = loss.rsplit('.').next().unwrap_or_default();
        taken.note(format!("loss: {last} (the logits are counted whole, and it needs less)"));
    } else if loss.starts_with("torchtune.rlhf") || loss.contains("grpo") {
        taken.unsupported("loss", &loss.into(), None);
    }
    Ok(())
}

/// The class that makes the network says whether it has adapters, and weights of 4 bits.
fn model(model: &Keys<'_>, taken: &mut Taken<'_>) {
    let component = model.text("_component_").unwrap_or_default();
    let class = component.rsplit('.').next().unwrap_or_default();
    if model.is_on("apply_lora_to_output") {
        taken.unsupported("apply_lora_to_output", &true.into(), None);
    }
    if model.value("decoder_trainable").is_some() || model.value("fusion_trainable").is_some() {
        taken.unsupported(
            "model.decoder_trainable",
            model.value("decoder_trainable").unwrap_or(&Value::Null),
            Some("freeze"),
        );
    }
    if !class.starts_with("lora_") && !class.starts_with("qlora_") {
        return;
    }
    if class.starts_with("qlora_") || model.is_on("quantize_base") {
        taken.set("load-in-4bit", true);
        taken.note("weights of 4 bits by torchao (counted as those of bitsandbytes)");
    }
    let named = model.texts("lora_attn_modules");
    let mut layers: Vec<&str> =
        LAYERS.iter().filter(|(theirs, _)| named.iter().any(|name| name == theirs)).map(|(_, ours)| *ours).collect();
    if model.is_on("apply_lora_to_mlp") {
        layers.extend(["gate_proj", "up_proj", "down_proj"]);
    }
    if class.contains("phi3") || class.contains("phi4") {
        for layer in &mut layers {
            *layer = fused_of_phi(layer);
        }
        layers.dedup();
        taken.note("adapters of Phi-3 (its layers for queries, keys and values are one in transformers, and so are gate and up)");
    }
    let target = (!layers.is_empty()).then(|| layers.join(","));
    taken.adapters(model, model.whole("lora_rank").unwrap_or(8), target, model.number("lora_dropout"));
}

/// The layer of transformers' Phi-3 that computes what this one does.
fn fused_of_phi(layer: &'static str) -> &'static str {
    match layer {
        "q_proj" | "k_proj" | "v_proj" => "qkv_proj",
        "gate_proj" | "up_proj" => "gate_up_proj",
        other => other,
    }
}

fn optimizer(optimizer: &Keys<'_>, taken: &mut Taken<'_>) {
    let Some(component) = optimizer.text("_component_") else { return };
    let name = match component {
        "torch.optim.AdamW" if optimizer.is_on("fused") => "adamw_torch_fused",
        "torch.optim.AdamW" => "adamw_torch",
        "torch.optim.SGD" => "sgd",
        "bitsandbytes.optim.AdamW8bit" => "adamw_8bit",
        "bitsandbytes.optim.PagedAdamW8bit" => "paged_adamw_8bit",
        "bitsandbytes.optim.PagedAdamW" => "paged_adamw_32bit",
        other => other,
    };
    optimizers::set(taken, "optimizer._component_", &name.into());
}

/// Returns the network: the folder of the weights if it has a configuration, else the name that a comment downloads it by, else the folder's name.
pub(super) fn network(keys: &Keys<'_>, text: &str) -> Option<String> {
    let folder = keys.inner("checkpointer").text("checkpoint_dir").unwrap_or_default().to_string();
    if Path::new(&folder).join("config.json").is_file() {
        return Some(folder);
    }
    let name = folder.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let mut downloads = commented(text, "tune download ").filter_map(|words| words.split_whitespace().next());
    let downloaded = downloads.find(|hub| name.is_empty() || hub.ends_with(name));
    downloaded.map(String::from).or_else(|| (!name.is_empty()).then(|| name.into()))
}

/// Returns torchtune's recipe that takes the file: the one that a comment starts, else by the network and the devices.
pub(super) fn recipe<'a>(keys: &Keys<'_>, text: &'a str) -> &'a str {
    let of_comment = commented(text, "tune run ").find_map(|words| {
        let words: Vec<&str> = words.split_whitespace().collect();
        words.windows(2).find(|pair| pair[1] == "--config").map(|pair| pair[0])
    });
    let component = keys.inner("model");
    let has_adapters = component.text("_component_").is_some_and(|name| name.contains("lora_"));
    of_comment.unwrap_or(if has_adapters { "lora_finetune_single_device" } else { "full_finetune_single_device" })
}

/// Returns what stands after this command in comments.
fn commented<'a>(text: &'a str, command: &'a str) -> impl Iterator<Item = &'a str> {
    let comments = text.lines().filter(|line| line.trim_start().starts_with('#'));
    comments.filter_map(move |line| Some(line.split_once(command)?.1))
}
