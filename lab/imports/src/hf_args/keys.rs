//! Names of arguments, by their effect on memory.

use lab_models::LORA_SWITCHES;

/// Arguments without effect on the device memory of a training step.
#[rustfmt::skip]
pub(super) const WITHOUT_WEIGHT: &[&str] = &[
    "output_dir", "overwrite_output_dir", "num_train_epochs", "max_steps", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio",
    "adam_beta1", "adam_beta2", "adam_epsilon", "average_tokens_across_devices", "torch_compile_backend",
    "torch_compile_mode", "liger_kernel_config", "logging_dir", "logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node",
    "logging_nan_inf_filter", "include_num_input_tokens_seen", "include_tokens_per_second", "log_level", "log_level_replica", "disable_tqdm",
    "report_to", "run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "eval_steps", "eval_delay",
    "per_device_eval_batch_size", "per_gpu_eval_batch_size", "prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object",
    "eval_accumulation_steps", "include_for_metrics", "include_inputs_for_metrics", "batch_eval_metrics", "bf16_full_eval", "fp16_full_eval",
    "save_only_model", "save_strategy", "save_steps", "save_on_each_node", "save_total_limit", "save_safetensors", "enable_jit_checkpoint",
    "push_to_hub", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token", "hub_token", "hub_private_repo", "hub_model_id",
    "hub_strategy", "hub_always_push", "hub_revision", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "ignore_data_skip",
    "restore_callback_states_from_checkpoint", "data_seed", "jit_mode_eval", "use_ipex", "dataloader_drop_last",
    "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor",
    "dataloader_multiprocessing_context", "dataloader_in_order", "remove_unused_columns", "label_names", "group_by_length",
    "train_sampling_strategy", "length_column_name", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers",
    "ddp_static_graph", "ddp_backend", "ddp_timeout", "ddp_timeout_delta", "debug", "skip_memory_metrics", "do_train", "do_predict",
    "past_index", "mp_parameters", "fp16_opt_level", "fp16_backend", "half_precision_backend",
    "tpu_num_cores", "tpu_metrics_debug", "torchdynamo", "ray_scope", "dispatch_batches", "split_batches", "full_determinism", "use_mps_device",
    "fsdp_config", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap", "use_legacy_prediction_loop",
    "include_optimizer_state", "distributed_state", "deepspeed_plugin", "hf_deepspeed_config", "fsdp_plugin_args",
    // Results of `bf16` and `fp16`, which are read themselves.
    "mixed_precision",
    // From Seq2SeqTrainingArguments: all except the first are about generation.
    "sortish_sampler", "predict_with_generate", "generation_max_length", "generation_num_beams", "generation_config",
    // From scripts: the network and the data; from TRL: the preparation of the data, and adapters.
    "tokenizer_name", "cache_dir", "use_fast_tokenizer", "model_revision", "token", "trust_remote_code", "dataset_name", "dataset_config_name",
    "dataset_config", "train_file", "validation_file", "test_file", "overwrite_cache", "preprocessing_num_workers", "max_train_samples",
    "max_eval_samples", "max_predict_samples", "dataset_text_field", "dataset_num_proc", "dataset_train_split", "dataset_test_split", "lora_r",
    "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_parameters", "lora_modules_to_save", "lora_task_type",
    "bnb_4bit_quant_type", "bnb_4bit_quant_storage", "use_bnb_nested_quant", "dataset_streaming", "ignore_bias_buffers", "dataset_kwargs", "eval_packing",
    "dataset_batch_size", "num_of_sequences", "chars_per_token", "chat_template_path", "eos_token", "pad_token", "truncation_mode", "shuffle_dataset",
    "packing_strategy", "pad_to_multiple_of", "completion_only_loss", "assistant_only_loss", "router_aux_loss_coef", "loss_type",
    "gradient_checkpointing_use_reentrant",
];

/// Arguments that decide memory when on and that are not supported, with the field that would replace each.
#[rustfmt::skip]
pub(super) const NOT_HERE: &[(&str, Option<&str>)] = &[
    ("torch_compile", None), ("deepspeed", Some("data-parallel")), ("fsdp", Some("data-parallel")), ("use_liger_kernel", Some("liger")), ("use_liger", Some("liger")),
    ("neftune_noise_alpha", None), ("label_smoothing_factor", None), ("torch_empty_cache_steps", None), ("auto_find_batch_size", None),
    ("sharded_ddp", Some("data-parallel")), ("parallelism_config", None), ("optim_args", None), ("optim_target_modules", None), ("use_cache", None),
    ("use_apex", None), ("packing", Some("packing")), ("padding_free", Some("packing")), ("activation_offloading", Some("save-on-cpu")), ("use_peft", None), ("use_lora", None),
    ("load_in_8bit", None), ("load_in_4bit", None), ("freeze_encoder", Some("freeze")), ("freeze_base_model", Some("freeze")),
    ("freeze_feature_encoder", Some("freeze")),
    ("adafactor", Some("optimizer")), ("quantization_config", None),
];

/// Arguments of trainers with other steps, most with a second network: TRL's for preferences, rewards and reinforcement learning.
#[rustfmt::skip]
pub(super) const OTHER_TRAINERS: &[&str] = &[
    "beta", "num_generations", "max_completion_length", "max_prompt_length", "precompute_ref_log_probs", "ref_model_init_kwargs", "reward_model_path",
    "teacher_model_name_or_path", "center_rewards_coefficient", "num_ppo_epochs", "desirable_weight", "rpo_alpha",
];

/// Arguments of TRL's `SFTConfig` that `TrainingArguments` lacks, by which its files are recognised.
pub(super) const OF_SFT: &[&str] =
    &["dataset_text_field", "packing", "model_init_kwargs", "dataset_kwargs", "completion_only_loss"];

/// Arguments that only release 4 has: a file with one of them is for release 4.
#[rustfmt::skip]
pub(super) const ONLY_4: &[&str] = &[
    "fp16_backend", "fp16_opt_level", "fsdp_min_num_params", "half_precision_backend", "include_inputs_for_metrics", "include_tokens_per_second",
    "jit_mode_eval", "mp_parameters", "no_cuda", "overwrite_output_dir", "past_index", "per_gpu_train_batch_size", "push_to_hub_model_id",
    "push_to_hub_token", "save_safetensors", "torchdynamo", "tpu_metrics_debug", "use_legacy_prediction_loop", "evaluation_strategy", "group_by_length",
];

/// Arguments that only release 5 has.
#[rustfmt::skip]
pub(super) const ONLY_5: &[&str] = &[
    "activation_checkpointing", "activation_checkpointing_kwargs", "dataloader_in_order", "dataloader_multiprocessing_context", "ddp_static_graph",
    "enable_jit_checkpoint", "trackio_bucket_id", "trackio_static_space_id", "train_sampling_strategy",
];

/// Arguments that only `TrainingArguments` has.
pub(super) const OF_TRAINER: &[&str] =
    &["per_device_train_batch_size", "output_dir", "gradient_accumulation_steps", "num_train_epochs"];

/// Arguments that become fields of a run or are read together.
#[rustfmt::skip]
const READ: &[&str] = &[
    "per_device_train_batch_size", "gradient_accumulation_steps", "max_seq_length", "max_length", "block_size", "model_max_length", "seed",
    "learning_rate", "weight_decay", "max_grad_norm", "gradient_checkpointing", "gradient_checkpointing_kwargs", "tf32", "optim", "bf16", "fp16",
    "torch_dtype", "dtype", "attn_implementation", "accelerator_config", "eval_strategy", "do_eval", "eval_on_start", "use_cpu",
    "resume_from_checkpoint", "local_rank", "model_name_or_path", "config_name",
];

/// Returns the names of all arguments that are known.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let switches = LORA_SWITCHES.iter().map(|switch| switch.peft);
    READ.iter().chain(WITHOUT_WEIGHT).copied().chain(switches).chain(NOT_HERE.iter().map(|(name, _)| *name))
}
