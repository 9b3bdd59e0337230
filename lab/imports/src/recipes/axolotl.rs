//! Recipes of axolotl.

use lab_base::error::Result;
use serde_json::Value;

use super::keys::Effect::{AboveOne, Inexact, Nothing, Number, Read, Unsupported, Whole};
use super::keys::{Keys, Table, Taken};
use super::optimizers;
use crate::hf_args::is_on;

/// Tokens of an example unless the recipe says.
const SEQUENCE: u64 = 512;

/// Rank of PEFT's adapters unless the recipe says.
const RANK: u64 = 8;

#[rustfmt::skip]
pub(super) const KEYS: Table = &[
    (Whole("batch"), &["micro_batch_size"]),
    (Whole("sequence"), &["sequence_len"]),
    (Whole("seed"), &["seed"]),
    (Number("lr"), &["learning_rate"]),
    (Number("weight-decay"), &["weight_decay"]),
    (Read, &[
        "base_model", "gradient_accumulation_steps", "batch_size", "bf16", "fp16", "bfloat16", "float16", "float32", "torch_dtype", "adapter", "lora_r",
        "lora_dropout", "lora_target_modules", "lora_target_linear", "load_in_4bit", "load_in_8bit", "optimizer", "gradient_checkpointing",
        "gradient_checkpointing_kwargs", "attn_implementation", "flash_attention", "sdp_attention", "eager_attention", "xformers_attention",
        "flex_attention", "sage_attention", "max_grad_norm", "plugins", "sample_packing", "deepspeed", "fsdp", "fsdp_config",
        "liger_fused_linear_cross_entropy", "cut_cross_entropy",
        "unfrozen_parameters", "activation_offloading",
    ]),
    (Inexact("counted without it: compiled, nanoGPT needed 27 % less"), &["torch_compile"]),
    (Unsupported(Some("data-parallel")), &["use_ray", "deepcompile"]),
    (AboveOne(Some("data-parallel")), &[
        "dp_shard_size", "dp_replicate_size", "tensor_parallel_size", "context_parallel_size", "context_parapllel_size", "sequence_parallel_degree",
        "expert_parallel_size",
    ]),
    (Unsupported(None), &[
        "rl", "reward_model", "process_reward_model", "ebft", "trl", "vllm", "relora", "lisa_n_layers", "gptq", "qat", "fp8",
        "lora_target_parameters", "peft_layers_to_transform", "peft_layer_replication", "peft_trainable_token_indices",
        "lora_rank_pattern", "layer_offloading", "tiled_mlp", "use_onebitllms",
        "quantize_moe_experts", "model_quantization_config", "optim_args", "optim_target_modules", "peft_autocast_adapter_dtype", "reinit_weights",
        "llmcompressor", "diffusion", "lora_embedding_kernel", "shrink_embeddings", "qlora_sharded_model_loading", "dynamic_checkpoint",
        "auto_find_batch_size", "overrides_of_model_config", "model_config", "trainer_cls",
    ]),
    (Unsupported(Some("freeze")), &["freeze_mm_modules"]),
    (Unsupported(Some("checkpoint-save")), &["selective_checkpointing"]),
    (Unsupported(Some("lora")), &["lora_model_dir", "lora_on_cpu"]),
    (Inexact("vramlab does not support Liger's kernels, which keep less"), &[
        "liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_glu_activation", "liger_rms_norm_gated", "liger_use_token_scaling",
    ]),
    (Inexact("fused kernels need less"), &[
        "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "flash_attn_fuse_mlp", "flash_attn_rms_norm", "flash_attn_cross_entropy", "use_kernels", "fused_attn_kernel",
        "use_dsv4_kernels", "use_glm_dsa_kernels",
    ]),
    // Neither is `--loss chunked`: axolotl's makes all scores and converts them in parts, Liger's computes gradients in their place.
    (Unsupported(Some("loss")), &["liger_cross_entropy", "chunked_cross_entropy"]),
    (Inexact("experts are counted as transformers computes them"), &[
        "use_scattermoe", "use_sonicmoe", "experts_implementation", "llama4_linearized_experts", "dsv4_fp4_grouped_mode", "nvfp4_merge_aware",
    ]),
    (Inexact("pictures and sounds are counted as the class's own sizes"), &["processor_type", "processor_kwargs", "image_size"]),
    (Inexact("its noise is not counted"), &["neftune_noise_alpha", "noisy_embedding_alpha"]),
    (Inexact("its own attention is counted as sdpa"), &[
        "flash_optimum", "gemma4_hybrid_attn_impl", "large_head_attention", "flash_attn_d512", "sdpa_varlen", "scaling_softmax", "s2_attention",
    ]),
    (Inexact("its own loss is counted as cross entropy"), &["use_eaft", "num_labels"]),
    (Inexact("a few more tokens are not counted"), &["tokens", "resize_token_embeddings_to_32x", "added_tokens_overrides", "special_tokens"]),
    (Inexact("evaluation is not counted"), &["evals_per_epoch", "eval_steps", "do_bench_eval", "do_causal_lm_eval", "generate_samples"]),
    (Inexact("norms in float32 are not counted"), &["fp32_norms"]),
    (Inexact("the setting is not counted"), &[
        "torch_empty_cache_steps", "gc_steps", "bnb_config_kwargs", "gpu_memory_limit", "max_memory", "peft", "embeddings_skip_upcast", "device_map",
        "accelerator_config", "loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale", "mean_resizing_embeddings", "rope_scaling",
    ]),
    (Nothing, &[
        "output_dir", "datasets", "test_datasets", "pretraining_dataset", "dataset_prepared_path", "val_set_size", "num_epochs", "lr_scheduler",
        "lr_scheduler_kwargs", "warmup_ratio", "warmup_steps", "logging_steps", "saves_per_epoch", "save_steps", "save_total_limit", "save_strategy",
        "save_first_step", "save_only_model", "save_safetensors", "wandb_project", "wandb_entity", "wandb_watch", "wandb_name", "wandb_log_model",
        "wandb_run_id", "wandb_mode", "use_wandb", "tf32", "chat_template", "chat_template_jinja", "chat_template_kwargs", "tokenizer_type",
        "model_type", "type_of_model", "strict", "resume_from_checkpoint", "auto_resume_from_checkpoints", "lora_alpha", "lora_alpha_pattern",
        "lora_fan_in_fan_out", "peft_init_lora_weights", "peft_ensure_weight_tying", "peft_layers_pattern", "merge_lora",
        "merge_method", "trust_remote_code", "remove_unused_columns", "eot_tokens", "skip_prepare_dataset", "max_steps", "pad_to_sequence_len",
        "pad_to_multiple_of", "eval_sample_packing", "eval_sequence_len", "eval_batch_size", "loss_watchdog_threshold", "loss_watchdog_patience",
        "train_on_inputs", "group_by_length", "early_stopping_patience", "tokenizer_use_mistral_common", "tokenizer_config", "tokenizer_use_fast",
        "tokenizer_legacy", "tokenizer_save_jinja_files", "cls_model_config", "base_model_config", "revision_of_model", "base_model_ignore_patterns",
        "hub_model_id", "hub_strategy", "hub_revision", "push_dataset_to_hub", "hf_use_auth_token", "adam_beta1", "adam_beta2", "adam_beta3",
        "adam_epsilon", "adam_epsilon2", "adam_eps", "eta_min", "cosine_min_lr_ratio", "cosine_constant_lr_ratio", "lr_quadratic_warmup",
        "lr_div_factor", "debug", "ddp_find_unused_parameters", "ddp_timeout", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp", "local_rank",
        "world_size", "fsdp_version", "shuffle_merged_datasets", "shuffle_before_merging_datasets", "dataset_exact_deduplication",
        "dataset_processes", "dataset_num_proc", "dataset_keep_in_memory", "dataset_shard_num", "dataset_shard_idx", "num_dataset_shards_to_save",
        "dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor", "dataloader_drop_last", "excess_length_strategy",
        "min_sample_len", "max_prompt_len", "sample_packing_eff_est", "sample_packing_seq_len_multiplier", "sample_packing_group_size",
        "sample_packing_bin_size", "sample_packing_sequentially", "sample_packing_mp_start_method", "curriculum_sampling", "total_num_tokens",
        "total_supervised_tokens", "max_packed_sequence_len", "streaming", "streaming_multipack_buffer_size", "pretrain_multipack_attn",
        "pretrain_multipack_buffer_size", "pretraining_sample_concatenation", "multipack_real_batches", "batch_flattening", "use_tensorboard",
        "use_mlflow", "mlflow_tracking_uri", "mlflow_experiment_name", "mlflow_run_name", "hf_mlflow_log_artifacts", "use_comet", "comet_api_key",
        "comet_workspace", "comet_project_name", "comet_experiment_key", "comet_mode", "comet_online", "comet_experiment_config", "use_trackio",
        "trackio_project_name", "trackio_run_name", "trackio_space_id", "use_swanlab", "swanlab_project", "swanlab_experiment_name",
        "swanlab_description", "swanlab_mode", "swanlab_log_completions", "swanlab_completion_log_interval", "swanlab_completion_max_buffer",
        "swanlab_workspace", "swanlab_log_model", "use_otel_metrics", "otel_metrics_host", "otel_metrics_port", "include_tokens_per_second",
        "include_tkps", "profiler_steps", "profiler_steps_start", "load_best_model_at_end", "metric_for_best_model", "greater_is_better",
        "eval_strategy", "evaluation_strategy", "eval_table_size", "eval_max_new_tokens", "eval_causal_lm_metrics", "bench_dataset", "bench_split",
        "torchdistx_path", "gptq_groupsize", "gptq_model_v1", "gptq_disable_exllama", "low_cpu_mem_usage", "experimental_skip_move_to_device",
        "torch_compile_mode", "torch_compile_backend", "torch_compile_options", "flex_attn_compile_kwargs", "ray_num_workers", "ray_run_name",
        "resources_per_worker", "relora_prune_ratio", "relora_prune_method", "relora_cpu_offload", "jagged_restart_steps",
        "jagged_restart_warmup_steps", "jagged_restart_anneal_steps", "lisa_step_interval", "lisa_layers_attribute", "eaft_alpha", "eaft_k",
        "is_falcon_derived_model", "is_llama_derived_model", "is_mistral_derived_model", "is_qwen_derived_model", "default_system_message",
        "fix_untrained_tokens", "project_name", "secrets", "heads_k_stride", "ring_attn_func", "loraplus_lr_embedding", "gc_collect_steps",
        "chunked_cross_entropy_num_chunks", "model_quantization_config_kwargs", "expert_parallel_num_nvl_bytes", "expert_parallel_token_capacity",
        "fp8_enable_fsdp_float8_all_gather", "tiled_mlp_num_shards", "tiled_mlp_use_original_mlp", "rl_beta", "orpo_alpha", "cpo_alpha",
        "simpo_gamma", "kto_desirable_weight", "kto_undesirable_weight", "center_rewards_coefficient", "full_finetune", "use_pose",
        "image_resize_algorithm", "role_boundaries", "generation_max_new_tokens", "num_generation_samples",
    ]),
];

/// Reads the keys that decide together.
pub(super) fn settle(keys: &Keys<'_>, taken: &mut Taken<'_>) -> Result<()> {
    taken.default("batch", 1);
    taken.default("sequence", SEQUENCE);
    let batch = keys.whole("micro_batch_size").unwrap_or(1).max(1);
    let of_whole = || keys.whole("batch_size").map(|whole| (whole / batch).max(1));
    taken.set("accumulate", keys.whole("gradient_accumulation_steps").or_else(of_whole).unwrap_or(1));
    if let Some(norm) = keys.number("max_grad_norm") {
        taken.clip(norm);
    }
    match keys.value("optimizer") {
        Some(optimizer) => optimizers::set(taken, "optimizer", optimizer),
        None => optimizers::set(taken, "optimizer", &"adamw_torch_fused".into()),
    }
    types(keys, taken);
    adapters(keys, taken);
    trained_parts(keys, taken);
    checkpointing(keys, taken);
    offloading(keys, taken);
    attention(keys, taken);
    if keys.is_on("sample_packing") {
        taken.note("sample_packing=true (each row is counted full, as one text of sequence_len tokens)");
    } else {
        taken.note("sequence_len (every example is counted as long as the longest that the recipe allows)");
    }
    sharding(keys, taken);
    let plugins = keys.texts("plugins");
    let fused = ["liger_fused_linear_cross_entropy", "cut_cross_entropy"].into_iter().find(|key| keys.is_on(key));
    let cuts = plugins.iter().find(|plugin| plugin.ends_with("CutCrossEntropyPlugin"));
    match (fused, cuts) {
        (Some(key), _) => taken.fused_loss(key, &true.into()),
        // The plugin's own switch is on unless it is false.
        (None, Some(plugin)) if keys.value("cut_cross_entropy").is_none() => {
            taken.fused_loss("plugins", &plugin.clone().into());
        }
        _ => {}
    }
    for plugin in plugins {
        let last = plugin.rsplit('.').next().unwrap_or_default();
        match last {
            "LigerPlugin" | "SwanLabPlugin" | "CutCrossEntropyPlugin" => {}
            "KernelsPlugin" => taken.inexact("plugins", &plugin.clone().into(), "fused kernels need less"),
            _ => taken.unsupported("plugins", &plugin.clone().into(), None),
        }
    }
    Ok(())
}

/// FSDP and DeepSpeed: parameters, gradients and states of the optimizer are divided among the cards.
fn sharding(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let config = keys.inner("fsdp_config");
    let strategy =
        config.text("sharding_strategy").or_else(|| config.text("fsdp_sharding_strategy")).unwrap_or_default();
    for name in ["fsdp", "fsdp_config"] {
        let Some(value) = keys.value(name).filter(|value| is_on(value)) else { continue };
        match strategy {
            "" | "FULL_SHARD" => taken.fsdp(name, &true.into(), 3),
            "SHARD_GRAD_OP" => taken.fsdp(name, &true.into(), 2),
            _ => taken.unsupported(name, value, Some("data-parallel")),
        }
    }
    let offloads = ["offload_params", "fsdp_offload_params", "cpu_offload"];
    if let Some(key) = offloads.into_iter().find(|key| config.is_on(key)) {
        taken.unsupported(&format!("fsdp_config.{key}"), &true.into(), None);
    }
    if let Some(value) = keys.value("deepspeed").filter(|value| is_on(value)) {
        taken.deepspeed("deepspeed", value);
    }
}

/// The type of the weights is that of the products.
fn types(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let bf16 =
        keys.is_on("bf16") && !(keys.text("bf16") == Some("auto") && keys.is_on("fp16")) || keys.is_on("bfloat16");
    let fp16 = keys.is_on("fp16") || keys.is_on("float16") || keys.is_on("load_in_8bit");
    match (bf16, fp16) {
        (true, _) => taken.precision("bf16", "bfloat16", Some("bfloat16")),
        (false, true) => taken.precision("fp16", "float16", keys.is_on("fp16").then_some("float16")),
        (false, false) => taken.precision("bf16", "float32", None),
    }
}

fn adapters(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let (four, eight) = (keys.is_on("load_in_4bit"), keys.is_on("load_in_8bit"));
    if four || eight {
        taken.set(if four { "load-in-4bit" } else { "load-in-8bit" }, true);
        taken.note("weights of 4 or 8 bits (norms and embeddings are counted in float32, as PEFT prepares them; axolotl casts some of them back)");
    }
    match keys.text("adapter") {
        None => {}
        Some("lora" | "qlora") => {
            let named = taken.targets_or_pattern(keys, "lora_target_modules");
            let target = if keys.is_on("lora_target_linear") { Some("all-linear".to_string()) } else { named };
            taken.adapters(keys, keys.whole("lora_r").unwrap_or(RANK), target, keys.number("lora_dropout"));
        }
        Some(_) => taken.unsupported("adapter", keys.value("adapter").unwrap_or(&Value::Null), Some("lora")),
    }
}

/// Regular expressions of the parameters that are trained, matched from the beginning of a name. The others are frozen.
fn trained_parts(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let Some(value) = keys.value("unfrozen_parameters").filter(|_| keys.is_on("unfrozen_parameters")) else { return };
    let name = |pattern: &String| {
        let whole = pattern.ends_with('$');
        let name = pattern.trim_start_matches('^').trim_end_matches('$').replace("\\.", ".");
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        plain.then(|| if whole { format!("!{name}") } else { format!("!{name}*") })
    };
    let names: Option<Vec<String>> = keys.texts("unfrozen_parameters").iter().map(name).collect();
    match names.filter(|names| !names.is_empty()) {
        Some(names) => taken.set("freeze", format!("*,{}", names.join(","))),
        None => taken.unsupported("unfrozen_parameters", value, Some("freeze")),
    }
}

fn checkpointing(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    match keys.value("gradient_checkpointing") {
        Some(Value::Bool(true)) => {
            taken.set("checkpoint", "blocks");
            // Its configuration sets it so (0.19).
            let others = ["gradient_checkpointing_kwargs", "unfrozen_parameters", "rl"];
            let is_default = others.into_iter().all(|key| keys.value(key).is_none_or(Value::is_null));
            let says = keys.inner("gradient_checkpointing_kwargs").is_on("use_reentrant");
            if says || is_default {
                taken.reentrant(
                    if says { "as the recipe says" } else { "axolotl's default" },
                    keys.is_on("load_in_8bit"),
                );
            }
        }
        Some(Value::String(how)) if how == "offload" => taken.set("checkpoint", "blocks"),
        Some(other @ Value::String(_)) => taken.unsupported("gradient_checkpointing", other, Some("checkpoint")),
        _ => {}
    }
}

/// What forward saves is kept on the host. A divided run is not counted so.
fn offloading(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let of_blocks = keys.text("gradient_checkpointing") == Some("offload");
    let key = if of_blocks { "gradient_checkpointing" } else { "activation_offloading" };
    let Some(value) = keys.value(key).filter(|value| of_blocks || is_on(value)) else { return };
    if ["fsdp", "fsdp_config", "deepspeed"].into_iter().any(|name| keys.is_on(name)) {
        return taken.unsupported(key, value, None);
    }
    taken.set("save-on-cpu", "pinned");
    taken.inexact(key, value, "counted as --save-on-cpu=pinned; axolotl's own keeps some tensors for a moment longer");
}

fn attention(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let flags = [
        "flash_attention",
        "xformers_attention",
        "flex_attention",
        "sage_attention",
        "sdp_attention",
        "eager_attention",
    ];
    let flag = flags.into_iter().find(|flag| keys.is_on(flag));
    match keys.text("attn_implementation").or(flag) {
        Some("sdpa" | "sdp_attention") => taken.set("attention", "sdpa"),
        Some("eager" | "eager_attention") => taken.set("attention", "eager"),
        Some(other) => taken.note(format!("{other} (counted as sdpa, whose kernel keeps the same tensors)")),
        None => {}
    }
}
