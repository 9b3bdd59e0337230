//! The plan as arguments of libraries of Python: transformers' `TrainingArguments`, PEFT's `LoraConfig`, bitsandbytes' configuration.

use lab_models::LORA_ALPHA;
use serde_json::{Map, Value, json};

use super::plan::HandedPlan;

/// Keyword arguments of `TrainingArguments`.
pub(super) fn training(plan: &HandedPlan<'_>, optim: &str) -> Map<String, Value> {
    let products = plan.autocast();
    let mut arguments = json!({
        "output_dir": "out",
        "per_device_train_batch_size": plan.micro_batch(),
        "gradient_accumulation_steps": plan.run.accumulate,
        "learning_rate": plan.run.optimizer.lr,
        "weight_decay": plan.weight_decay(),
        "max_grad_norm": plan.largest_norm(),
        "optim": optim,
        "bf16": products == Some("bfloat16"),
        "fp16": products == Some("float16"),
        "gradient_checkpointing": plan.checkpoints(),
    });
    if plan.checkpoints() {
        arguments["gradient_checkpointing_kwargs"] = json!({ "use_reentrant": false });
    }
    match arguments {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    }
}

/// Keyword arguments of `peft.LoraConfig`.
pub(super) fn lora(plan: &HandedPlan<'_>) -> Option<Value> {
    let lora = plan.lora()?;
    let mut arguments = json!({
        "task_type": "CAUSAL_LM",
        "r": lora.rank,
        "lora_alpha": LORA_ALPHA,
        "lora_dropout": lora.dropout,
        "target_modules": HandedPlan::targets(lora),
    });
    if let Value::Object(arguments) = &mut arguments {
        if !lora.saved.is_empty() {
            arguments.insert("modules_to_save".into(), lora.saved.clone().into());
        }
        arguments.extend(lora.switched_on().map(|switch| (switch.peft.into(), true.into())));
    }
    Some(arguments)
}

/// Keyword arguments of `transformers.BitsAndBytesConfig`.
pub(super) fn few_bits(plan: &HandedPlan<'_>) -> Option<Value> {
    let quantized = plan.run.quantized.as_ref()?;
    Some(match quantized.bits {
        4 => json!({
            "load_in_4bit": true,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": quantized.twice,
            "bnb_4bit_compute_dtype": plan.weights(),
        }),
        _ => json!({ "load_in_8bit": true }),
    })
}
