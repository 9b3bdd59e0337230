//! What each argument means for the memory of a training step.

use serde_json::Value;

/// What an argument comes to.
pub(super) enum Meaning {
    /// Nothing: as it is, or of no weight in memory.
    Nothing,
    /// It is not known here.
    Unknown,
    /// A field of a run.
    Field(&'static str, Value),
    /// An optimizer and its form.
    Optimizer(&'static str, &'static str),
    /// It decides memory, and no run here has it; the field that would stand for it.
    Refused(Option<&'static str>),
    /// The script does it, a run here does not: in a few words.
    LeftOut(&'static str),
    /// Its value makes no sense: what was expected.
    Wrong(&'static str),
}

/// Arguments of `TrainingArguments` that have no part in what a training step takes on the device.
#[rustfmt::skip]
const WITHOUT_WEIGHT: &[&str] = &[
    "output_dir", "overwrite_output_dir", "num_train_epochs", "max_steps", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio",
    "adam_beta1", "adam_beta2", "adam_epsilon", "average_tokens_across_devices", "activation_checkpointing_kwargs", "torch_compile_backend",
    "torch_compile_mode", "liger_kernel_config", "logging_dir", "logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node",
    "logging_nan_inf_filter", "include_num_input_tokens_seen", "include_tokens_per_second", "log_level", "log_level_replica", "disable_tqdm",
    "report_to", "run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "eval_steps", "eval_delay",
    "per_device_eval_batch_size", "per_gpu_eval_batch_size", "prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object",
    "eval_accumulation_steps", "include_for_metrics", "include_inputs_for_metrics", "batch_eval_metrics", "bf16_full_eval", "fp16_full_eval",
    "save_only_model", "save_strategy", "save_steps", "save_on_each_node", "save_total_limit", "save_safetensors", "enable_jit_checkpoint",
    "push_to_hub", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token", "hub_token", "hub_private_repo", "hub_model_id",
    "hub_strategy", "hub_always_push", "hub_revision", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "ignore_data_skip",
    "restore_callback_states_from_checkpoint", "data_seed", "jit_mode_eval", "use_ipex", "accelerator_config", "dataloader_drop_last",
    "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor",
    "dataloader_multiprocessing_context", "dataloader_in_order", "remove_unused_columns", "label_names", "group_by_length",
    "train_sampling_strategy", "length_column_name", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers",
    "ddp_static_graph", "ddp_backend", "ddp_timeout", "ddp_timeout_delta", "debug", "skip_memory_metrics", "do_train", "do_predict",
    "resume_from_checkpoint", "local_rank", "past_index", "mp_parameters", "fp16_opt_level", "fp16_backend", "half_precision_backend",
    "tpu_num_cores", "tpu_metrics_debug", "torchdynamo", "ray_scope", "dispatch_batches", "split_batches", "full_determinism", "use_mps_device",
    "fsdp_config", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap", "no_cuda", "use_cpu", "use_legacy_prediction_loop",
    "include_optimizer_state", "distributed_state", "deepspeed_plugin", "hf_deepspeed_config", "_n_gpu", "__cached__setup_devices",
    "_default_args_set",
    // What `bf16` and `fp16` came to, which are read themselves.
    "mixed_precision",
    // Which of them the network is, its own file says.
    "tokenizer_name", "cache_dir", "use_fast_tokenizer", "model_revision", "token", "trust_remote_code", "dataset_name", "dataset_config_name",
    "dataset_config", "train_file", "validation_file", "test_file", "overwrite_cache", "preprocessing_num_workers", "max_train_samples",
    "max_eval_samples", "max_predict_samples", "dataset_text_field", "dataset_num_proc", "dataset_train_split", "dataset_test_split", "lora_r",
    "lora_alpha", "lora_dropout", "lora_target_modules", "lora_task_type", "bnb_4bit_quant_type", "use_bnb_nested_quant",
];

/// Arguments that decide memory where they are on, and that no run here has.
#[rustfmt::skip]
const NOT_HERE: &[&str] = &[
    "torch_compile", "deepspeed", "fsdp", "use_liger_kernel", "use_liger", "neftune_noise_alpha", "label_smoothing_factor", "torch_empty_cache_steps",
    "auto_find_batch_size", "sharded_ddp", "parallelism_config", "optim_args", "optim_target_modules", "use_cache", "use_apex", "packing",
    "use_peft", "use_lora", "load_in_8bit", "load_in_4bit", "freeze_encoder", "freeze_base_model", "freeze_feature_encoder",
];

/// Arguments that only `TrainingArguments` has.
pub(super) fn is_the_trainers(name: &str) -> bool {
    matches!(name, "per_device_train_batch_size" | "output_dir" | "gradient_accumulation_steps" | "num_train_epochs")
}

pub(super) fn meaning(name: &str, value: &Value) -> Meaning {
    if name.starts_with('_') || WITHOUT_WEIGHT.contains(&name) {
        return Meaning::Nothing;
    }
    if NOT_HERE.contains(&name) {
        return if is_on(value) { Meaning::Refused(None) } else { Meaning::Nothing };
    }
    if value.is_null() {
        return Meaning::Nothing;
    }
    match name {
        "per_device_train_batch_size" | "per_gpu_train_batch_size" => whole("batch", value),
        "gradient_accumulation_steps" => whole("accumulate", value),
        "max_seq_length" | "max_length" | "block_size" | "model_max_length" => whole("sequence", value),
        "seed" => whole("seed", value),
        "learning_rate" => number("lr", value),
        "weight_decay" => number("weight-decay", value),
        // Of nought the library clips nothing; its loop here always does.
        "max_grad_norm" if value.as_f64() == Some(0.0) => Meaning::Refused(Some("clip-grad-norm")),
        "max_grad_norm" => number("clip-grad-norm", value),
        "gradient_checkpointing" | "activation_checkpointing" => match value {
            Value::Bool(true) => Meaning::Field("checkpoint", "blocks".into()),
            _ => Meaning::Nothing,
        },
        "gradient_checkpointing_kwargs" => match value.get("use_reentrant") {
            Some(Value::Bool(true)) => Meaning::LeftOut("counted as use_reentrant=False"),
            _ => Meaning::Nothing,
        },
        "tf32" => match value {
            Value::Bool(true) => Meaning::Field("tf32", "all".into()),
            _ => Meaning::Nothing,
        },
        "optim" => optimizer(value),
        "adafactor" => {
            if is_on(value) {
                Meaning::Refused(Some("optimizer"))
            } else {
                Meaning::Nothing
            }
        }
        // Put together by the caller: one precision of three arguments.
        "bf16" | "fp16" => {
            if value.is_boolean() {
                Meaning::Nothing
            } else {
                Meaning::Wrong("true or false")
            }
        }
        "torch_dtype" | "dtype" => dtype(value),
        "attn_implementation" | "_attn_implementation" => match value.as_str() {
            Some("eager") => Meaning::Field("attention", "eager".into()),
            Some("sdpa") => Meaning::Field("attention", "sdpa".into()),
            _ => Meaning::Refused(Some("attention")),
        },
        "eval_strategy" | "evaluation_strategy" => match value.as_str() {
            None | Some("no") => Meaning::Nothing,
            _ => Meaning::LeftOut("evaluation is not counted"),
        },
        "do_eval" | "eval_on_start" => {
            if is_on(value) {
                Meaning::LeftOut("evaluation is not counted")
            } else {
                Meaning::Nothing
            }
        }
        "model_name_or_path" | "config_name" => {
            Meaning::LeftOut("nothing is downloaded: its config.json is --model-file")
        }
        _ => Meaning::Unknown,
    }
}

fn is_on(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.as_str(), "" | "no" | "false"),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) => true,
    }
}

fn whole(field: &'static str, value: &Value) -> Meaning {
    match value.as_u64() {
        Some(number) => Meaning::Field(field, number.into()),
        None => Meaning::Wrong("a whole number"),
    }
}

fn number(field: &'static str, value: &Value) -> Meaning {
    // YAML knows `2e-5` as a text, as Python's does.
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number: &f64| number.is_finite());
    match number {
        Some(number) => Meaning::Field(field, number.into()),
        None => Meaning::Wrong("a number"),
    }
}

/// Names of `OptimizerNames`. Where torch has the choice, the lists of `foreach` are its own.
fn optimizer(value: &Value) -> Meaning {
    match value.as_str() {
        Some("adamw_torch") => Meaning::Optimizer("adamw", "foreach"),
        Some("adamw_torch_fused") => Meaning::Optimizer("adamw", "fused"),
        Some("sgd") => Meaning::Optimizer("sgd", "foreach"),
        Some("adagrad") => Meaning::Optimizer("adagrad", "foreach"),
        Some("rmsprop") => Meaning::Optimizer("rmsprop", "foreach"),
        _ => Meaning::Refused(Some("optimizer")),
    }
}

fn dtype(value: &Value) -> Meaning {
    let name = value.as_str().map(|name| name.strip_prefix("torch.").unwrap_or(name));
    match name {
        Some("auto" | "bfloat16" | "float16" | "float32") => Meaning::Nothing,
        _ => Meaning::Refused(Some("precision")),
    }
}
