//! What says how several cards share a step: accelerate's configuration, DeepSpeed's.

use serde_json::{Value, json};

use super::plan::HandedPlan;

/// Keyword of transformers and accelerate for products of 16 bits.
fn mixed_precision(plan: &HandedPlan<'_>) -> &'static str {
    match plan.autocast() {
        Some("bfloat16") => "bf16",
        Some(_) => "fp16",
        None => "no",
    }
}

/// accelerate's configuration for ZeRO's stage, or for replicas.
pub(super) fn accelerate(plan: &HandedPlan<'_>, heading: &str) -> String {
    let kind = match plan.spec.parallel.ranks.zero {
        Some(3) => "FSDP",
        Some(1 | 2) => "DEEPSPEED",
        _ => "MULTI_GPU",
    };
    let mut text = format!("# {heading}\ncompute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\n");
    match kind {
        "FSDP" => text.push_str(
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  \
             fsdp_state_dict_type: SHARDED_STATE_DICT\n",
        ),
        "DEEPSPEED" => text.push_str("deepspeed_config:\n  deepspeed_config_file: deepspeed.json\n"),
        _ => {}
    }
    // accelerate refuses a precision beside DeepSpeed's own file.
    if kind != "DEEPSPEED" {
        text.push_str(&format!("mixed_precision: \"{}\"\n", mixed_precision(plan)));
    }
    text.push_str(&format!(
        "num_machines: 1\nmachine_rank: 0\nnum_processes: {}\nmain_training_function: main\nrdzv_backend: static\nsame_network: true\n",
        plan.ranks()
    ));
    text
}

/// DeepSpeed's configuration, for ZeRO's first stages.
pub(super) fn deepspeed(plan: &HandedPlan<'_>) -> Option<Value> {
    let stage = plan.spec.parallel.ranks.zero.filter(|stage| *stage < 3)?;
    let mut config = json!({
        "train_micro_batch_size_per_gpu": plan.micro_batch(),
        "gradient_accumulation_steps": plan.run.accumulate,
        "zero_optimization": { "stage": stage },
        "bf16": { "enabled": plan.autocast() == Some("bfloat16") || plan.weights() == "bfloat16" },
        "fp16": { "enabled": plan.autocast() == Some("float16") || plan.weights() == "float16" },
    });
    if let Some(norm) = plan.run.clip_grad_norm {
        config["gradient_clipping"] = norm.into();
    }
    Some(config)
}
