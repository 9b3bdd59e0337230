//! Recipes of LLaMA-Factory.

use lab_base::error::Result;
use serde_json::Value;

use super::keys::Effect::{AboveOne, Inexact, Nothing, Read, Unsupported, Whole};
use super::keys::{Keys, Table, Taken};
use super::optimizers;
use crate::hf_args::is_on;

/// What LLaMA-Factory takes unless the recipe says.
const SEQUENCE: u64 = 2048;
const RANK: u64 = 8;

#[rustfmt::skip]
pub(super) const KEYS: Table = &[
    (Whole("sequence"), &["cutoff_len"]),
    (Read, &[
        "model_name_or_path", "stage", "do_train", "finetuning_type", "lora_rank", "lora_target", "lora_dropout", "quantization_bit",
        "quantization_method", "bf16", "fp16", "pure_bf16", "disable_gradient_checkpointing", "use_reentrant_gc", "flash_attn", "optim",
        "gradient_checkpointing", "gradient_checkpointing_kwargs", "packing", "neat_packing", "deepspeed",
        "double_quantization", "use_muon",
    ]),
    (Unsupported(Some("data-parallel")), &["fsdp", "use_ray"]),
    (AboveOne(Some("data-parallel")), &[
        "ray_num_workers", "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "context_parallel_size",
        "hyper_parallel_cp_size",
    ]),
    (Unsupported(Some("optimizer")), &["use_galore", "use_apollo", "use_badam", "use_adam_mini"]),
    (Unsupported(None), &[
        "use_llama_pro", "mixture_of_depths", "use_unsloth", "use_unsloth_gc", "use_kt", "use_mca",
        "use_megatron_bridge", "use_hyper_parallel", "fp8", "shift_attn", "use_asft_loss", "upcast_layernorm", "upcast_lmhead_output", "ref_model",
        "reward_model", "train_from_scratch", "module_dropout", "create_new_adapter", "adapter_name_or_path",
    ]),
    (Inexact("fused kernels need less"), &["enable_liger_kernel", "use_v1_kernels"]),
    (Inexact("its own loss is counted as cross entropy"), &["use_dft_loss", "use_eaft_loss"]),
    (Inexact("a few more tokens are not counted"), &["resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens_config"]),
    (Inexact("pictures, videos and sounds are counted as the class's own sizes"), &[
        "image_max_pixels", "image_min_pixels", "video_max_pixels", "video_min_pixels", "video_fps", "video_maxlen", "use_audio_in_video",
        "image_do_pan_and_scan", "crop_to_patches", "audio_sampling_rate", "media_dir",
    ]),
    (Inexact("the parts that LLaMA-Factory freezes are counted as the rest is"), &[
        "freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model",
    ]),
    (Inexact("evaluation is not counted"), &["val_size", "eval_dataset"]),
    (Inexact("the setting is not counted"), &["rope_scaling", "loraplus_lr_ratio", "compute_accuracy", "moe_aux_loss_coef"]),
    (Nothing, &[
        "adapter_folder", "cache_dir", "use_fast_tokenizer", "split_special_tokens", "init_special_tokens", "model_revision", "low_cpu_mem_usage",
        "offload_folder", "use_kv_cache", "infer_dtype", "infer_backend", "hf_hub_token", "ms_hub_token", "om_hub_token", "print_param_status",
        "trust_remote_code", "quantization_type", "quantization_device_map", "template", "dataset", "dataset_dir", "train_on_prompt", "mask_history",
        "streaming", "buffer_size", "mix_strategy", "interleave_probs", "overwrite_cache", "preprocessing_batch_size", "preprocessing_num_workers",
        "max_samples", "eval_num_beams", "ignore_pad_token_for_loss", "eval_on_each_dataset", "tool_format", "default_system", "enable_thinking",
        "preserve_thinking", "tokenized_path", "data_shared_file_system", "lora_alpha", "loraplus_lr_embedding", "pissa_init",
        "pissa_iter", "pissa_convert", "pref_beta", "pref_ftx", "pref_loss", "asft_alpha", "eaft_alpha", "use_swanlab", "swanlab_project",
        "swanlab_workspace", "swanlab_run_name", "swanlab_mode", "swanlab_api_key", "swanlab_logdir", "plot_loss", "disable_shuffling",
        "early_stopping_steps", "include_effective_tokens_per_second", "overwrite_output_dir", "ray_init_kwargs", "master_addr", "master_port",
        "placement_strategy", "resources_per_worker", "ray_storage_path", "enable_torch_profiler", "profiler_output_dir", "fp8_backend",
        "fp8_enable_fsdp_float8_all_gather", "do_sample", "temperature", "top_p", "top_k", "num_beams", "max_new_tokens", "repetition_penalty",
        "length_penalty", "skip_special_tokens", "vllm_maxlen", "vllm_gpu_util", "vllm_enforce_eager", "vllm_max_lora_rank", "image_resolution",
        "video_resolution", "galore_layerwise", "galore_target", "galore_rank", "galore_scale", "galore_update_interval", "galore_proj_type",
        "apollo_layerwise", "apollo_target", "apollo_rank", "apollo_scale", "apollo_scale_type", "apollo_update_interval", "badam_mode",
        "badam_switch_mode", "badam_switch_interval", "badam_verbose", "badam_start_block", "badam_update_ratio", "freeze_trainable_layers",
        "freeze_trainable_modules", "freeze_extra_modules", "oft_block_size", "oft_rank", "oft_target", "kt_cpu_activation", "kt_weight_path",
        "kt_non_expert_weight_path", "kt_expert_checkpoint_path", "kt_config", "sequence_parallel", "use_distributed_optimizer", "overlap_param_gather",
        "overlap_grad_reduce", "bias_activation_fusion", "apply_rope_fusion", "moe_grouped_gemm", "moe_token_dispatcher_type",
        "recompute_granularity", "use_packed_sequences", "export_hf_on_finish",
    ]),
];

/// Reads the keys that decide together.
pub(super) fn settle(keys: &Keys<'_>, taken: &mut Taken<'_>) -> Result<()> {
    taken.default("batch", 8);
    taken.default("sequence", SEQUENCE);
    match keys.text("stage").unwrap_or("sft") {
        "sft" | "pt" => {}
        _ => taken.unsupported("stage", keys.value("stage").unwrap_or(&Value::Null), None),
    }
    if !keys.is_on("do_train") {
        taken.unsupported("do_train", keys.value("do_train").unwrap_or(&Value::Bool(false)), None);
    }
    match keys.is_on("use_muon") {
        true => optimizers::set(taken, "use_muon", &"muon".into()),
        false => optimizers::set(taken, "optim", keys.value("optim").unwrap_or(&"adamw_torch_fused".into())),
    }
    let kind = keys.text("finetuning_type").unwrap_or("lora");
    match kind {
        "lora" => {
            let target = match keys.text("lora_target").unwrap_or("all") {
                "all" => Some("all-linear".to_string()),
                _ => taken.targets(keys, "lora_target"),
            };
            taken.adapters(keys, keys.whole("lora_rank").unwrap_or(RANK), target, keys.number("lora_dropout"));
        }
        "full" => {}
        _ => {
            let value = keys.value("finetuning_type").unwrap_or(&Value::Null);
            taken.unsupported("finetuning_type", value, Some(if kind == "freeze" { "freeze" } else { "lora" }));
        }
    }
    if let Some(value) = keys.value("deepspeed").filter(|value| is_on(value)) {
        taken.deepspeed("deepspeed", value);
    }
    quantized(keys, taken);
    types(keys, kind == "full", taken);
    if !keys.is_on("disable_gradient_checkpointing") {
        taken.set("checkpoint", "blocks");
        if keys.value("use_reentrant_gc").is_none_or(|value| *value == Value::Bool(true)) {
            let is_of_8_bits = keys.value("quantization_bit").and_then(Value::as_u64) == Some(8);
            taken.reentrant("LLaMA-Factory's default", is_of_8_bits);
        }
    }
    match keys.text("flash_attn").unwrap_or("auto") {
        "auto" => {}
        "disabled" | "eager" => taken.set("attention", "eager"),
        "sdpa" => taken.set("attention", "sdpa"),
        other => taken.note(format!("flash_attn={other} (counted as sdpa, whose kernel keeps the same tensors)")),
    }
    let packed = keys.is_on("packing") || keys.is_on("neat_packing") || keys.text("stage") == Some("pt");
    taken.note(match packed {
        true => "cutoff_len (rows of packed texts are counted full)",
        false => "cutoff_len (every example is counted as long as the longest that the recipe allows)",
    });
    Ok(())
}

/// Weights of 4 or 8 bits.
fn quantized(keys: &Keys<'_>, taken: &mut Taken<'_>) {
    let Some(bits) = keys.value("quantization_bit") else { return };
    let by_bnb = matches!(keys.text("quantization_method").unwrap_or("bnb"), "bnb" | "bitsandbytes");
    match bits.as_u64() {
        Some(4) if by_bnb => {
            taken.set("load-in-4bit", true);
            // LLaMA-Factory's own default.
            if keys.value("double_quantization").is_none_or(|value| *value == Value::Bool(true)) {
                taken.set("double-quant", true);
            }
        }
        Some(8) if by_bnb => taken.set("load-in-8bit", true),
        _ => return taken.unsupported("quantization_bit", bits, Some("load-in-4bit")),
    }
    taken.note("weights of 4 or 8 bits (norms and embeddings are counted in float32, as PEFT prepares them; LLaMA-Factory leaves them)");
}

/// LLaMA-Factory casts what it trains to float32, unless `pure_bf16`.
fn types(keys: &Keys<'_>, in_full: bool, taken: &mut Taken<'_>) {
    let trained = |of_products| if in_full { "float32" } else { of_products };
    if keys.is_on("pure_bf16") {
        taken.precision("pure_bf16", "bfloat16", None);
    } else if keys.is_on("bf16") {
        taken.precision("bf16", trained("bfloat16"), Some("bfloat16"));
    } else if keys.is_on("fp16") {
        taken.precision("fp16", trained("float16"), Some("float16"));
    }
}
