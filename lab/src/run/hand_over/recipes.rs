//! The plan as recipes: the YAML files of axolotl, LLaMA-Factory and TRL.

use lab_imports::huggingface::Attention;
use lab_models::{LORA_ALPHA, Lora, LoraSwitch, LoraTarget};
use serde_json::{Map, Value, json};

use super::plan::{HandedPlan, number};

/// Keys with their values, in the order in which they are written.
type Lines = Vec<(&'static str, Value)>;

/// A line of the user's in every recipe.
const YOURS: &str = "your-data.jsonl";

/// Writes keys as YAML. Texts and lists are JSON, which YAML reads, too.
pub(super) fn text(heading: &str, lines: &Lines) -> String {
    let mut text = String::new();
    heading.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
    for (key, value) in lines {
        let value = match value.as_f64().filter(|_| value.is_f64()) {
            Some(float) => number(float),
            None => value.to_string(),
        };
        text.push_str(&format!("{key}: {value}\n"));
    }
    text
}

/// What recipes call alike: rank, alpha, dropout, and the switches that are on.
fn adapters(lora: &Lora, [rank, saved]: [&'static str; 2], name: fn(&LoraSwitch) -> &'static str) -> Lines {
    let mut lines: Lines =
        vec![(rank, lora.rank.into()), ("lora_alpha", LORA_ALPHA.into()), ("lora_dropout", lora.dropout.into())];
    if !lora.saved.is_empty() {
        let names = if saved == "additional_target" { lora.saved.join(",").into() } else { lora.saved.clone().into() };
        lines.push((saved, names));
    }
    lines.extend(lora.switched_on().map(|switch| (name(switch), true.into())));
    lines
}

/// axolotl.
pub(super) fn axolotl(plan: &HandedPlan<'_>, optim: &str) -> Lines {
    let mut lines: Lines = vec![
        ("base_model", plan.network().into()),
        ("datasets", json!([{ "path": YOURS, "type": "completion" }])),
        ("output_dir", "out".into()),
        ("sequence_len", plan.tokens().into()),
        ("micro_batch_size", plan.micro_batch().into()),
        ("gradient_accumulation_steps", plan.run.accumulate.into()),
        ("num_epochs", 1.into()),
        ("optimizer", optim.into()),
        ("learning_rate", plan.run.optimizer.lr.into()),
        ("weight_decay", plan.weight_decay().into()),
        ("max_grad_norm", plan.largest_norm().into()),
        ("bf16", (plan.weights() == "bfloat16").into()),
        ("fp16", (plan.weights() == "float16").into()),
        ("gradient_checkpointing", plan.checkpoints().into()),
        ("attn_implementation", attention(plan).into()),
    ];
    if plan.checkpoints() {
        lines.push(("gradient_checkpointing_kwargs", json!({ "use_reentrant": false })));
    }
    if let Some(lora) = plan.lora() {
        let is_few = plan.run.quantized.as_ref().is_some_and(|quantized| quantized.bits == 4);
        lines.push(("adapter", if is_few { "qlora" } else { "lora" }.into()));
        lines.extend(adapters(lora, ["lora_r", "lora_modules_to_save"], |switch| switch.axolotl));
        match lora.target {
            LoraTarget::AllLinear => lines.push(("lora_target_linear", true.into())),
            _ => lines.push(("lora_target_modules", HandedPlan::targets(lora))),
        }
    }
    lines.extend(bits(plan).map(|(four, _)| (if four { "load_in_4bit" } else { "load_in_8bit" }, true.into())));
    lines
}

/// LLaMA-Factory.
pub(super) fn llama_factory(plan: &HandedPlan<'_>, optim: &str) -> Lines {
    let pure = plan.weights() == "bfloat16" && plan.autocast().is_none();
    let mut lines: Lines = vec![
        ("model_name_or_path", plan.network().into()),
        ("stage", "sft".into()),
        ("do_train", true.into()),
        ("finetuning_type", if plan.lora().is_some() { "lora" } else { "full" }.into()),
        ("dataset", "your_data".into()),
        ("template", "default".into()),
        ("output_dir", "out".into()),
        ("cutoff_len", plan.tokens().into()),
        ("per_device_train_batch_size", plan.micro_batch().into()),
        ("gradient_accumulation_steps", plan.run.accumulate.into()),
        ("num_train_epochs", 1.0.into()),
        ("optim", optim.into()),
        ("learning_rate", plan.run.optimizer.lr.into()),
        ("weight_decay", plan.weight_decay().into()),
        ("max_grad_norm", plan.largest_norm().into()),
        ("pure_bf16", pure.into()),
        ("bf16", (plan.autocast() == Some("bfloat16")).into()),
        ("fp16", (plan.autocast() == Some("float16")).into()),
        ("disable_gradient_checkpointing", (!plan.checkpoints()).into()),
        ("use_reentrant_gc", false.into()),
        ("flash_attn", if attention(plan) == "eager" { "disabled" } else { "sdpa" }.into()),
    ];
    if let Some(lora) = plan.lora() {
        lines.extend(adapters(lora, ["lora_rank", "additional_target"], |switch| switch.peft));
        lines.push((
            "lora_target",
            match &lora.target {
                LoraTarget::AllLinear => "all".into(),
                LoraTarget::Names(names) => names.join(",").into(),
                LoraTarget::Pattern(pattern) => pattern.clone().into(),
            },
        ));
    }
    if let Some((four, twice)) = bits(plan) {
        lines.push(("quantization_bit", if four { 4 } else { 8 }.into()));
        if four {
            lines.push(("double_quantization", twice.into()));
        }
    }
    lines
}

/// TRL's command line.
pub(super) fn trl(plan: &HandedPlan<'_>, mut arguments: Map<String, Value>) -> Lines {
    let mut lines: Lines = vec![
        ("model_name_or_path", plan.network().into()),
        ("dataset_name", YOURS.into()),
        ("max_length", plan.tokens().into()),
        ("dtype", plan.weights().into()),
        ("attn_implementation", attention(plan).into()),
    ];
    const TAKEN: [&str; 11] = [
        "output_dir",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "learning_rate",
        "weight_decay",
        "max_grad_norm",
        "optim",
        "bf16",
        "fp16",
        "gradient_checkpointing",
        "gradient_checkpointing_kwargs",
    ];
    lines.extend(TAKEN.into_iter().filter_map(|name| Some((name, arguments.remove(name)?))));
    if let Some(lora) = plan.lora() {
        lines.push(("use_peft", true.into()));
        lines.extend(adapters(lora, ["lora_r", "lora_modules_to_save"], |switch| switch.peft));
        lines.push(("lora_target_modules", HandedPlan::targets(lora)));
    }
    if let Some((four, twice)) = bits(plan) {
        lines.push((if four { "load_in_4bit" } else { "load_in_8bit" }, true.into()));
        lines.push(("use_bnb_nested_quant", twice.into()));
    }
    if let Some(settings) = plan.allocator() {
        lines.push(("env", json!({ "PYTORCH_CUDA_ALLOC_CONF": settings })));
    }
    lines
}

/// Whether weights have 4 bits, else 8, and whether their scales are quantized, too; `None` if they are as they are.
fn bits(plan: &HandedPlan<'_>) -> Option<(bool, bool)> {
    plan.run.quantized.as_ref().map(|quantized| (quantized.bits == 4, quantized.twice))
}

fn attention(plan: &HandedPlan<'_>) -> &'static str {
    match plan.model.options().attention {
        Attention::Eager => "eager",
        Attention::Sdpa => "sdpa",
    }
}
