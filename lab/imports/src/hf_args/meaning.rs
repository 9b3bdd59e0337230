//! Meaning of each argument for the memory of a training step.

use lab_training::OptimizerKind;
use serde_json::Value;

use super::keys::{NOT_HERE, OTHER_TRAINERS, WITHOUT_WEIGHT};

/// Meaning of an argument.
pub(super) enum Meaning {
    /// No effect on memory, or the default.
    Nothing,
    /// Unknown.
    Unknown,
    /// A field of a run.
    Field(&'static str, Value),
    /// An optimizer and its form.
    Optimizer(&'static str, &'static str),
    /// Gradients are not clipped.
    ClipsNothing,
    /// An object of arguments, each of which has a meaning.
    Nested,
    /// Decides memory and is not supported; the field that would replace it.
    Refused(Option<&'static str>),
    /// Done by the script, not by a run here: in a few words.
    LeftOut(&'static str),
    /// A senseless value: what was expected.
    Wrong(&'static str),
}

pub(super) fn meaning(name: &str, value: &Value) -> Meaning {
    // Checked first: of the records of a pickle, only this one has an effect.
    if name == "_n_gpu" && value.as_u64() > Some(1) {
        return Meaning::LeftOut("nn.DataParallel is not counted: one device takes the whole batch here");
    }
    if name.starts_with('_') && name != "_attn_implementation" || WITHOUT_WEIGHT.contains(&name) {
        return Meaning::Nothing;
    }
    if OTHER_TRAINERS.contains(&name) {
        return Meaning::Refused(None);
    }
    if let Some((_, field)) = NOT_HERE.iter().find(|(known, _)| *known == name) {
        return if is_on(value) { Meaning::Refused(*field) } else { Meaning::Nothing };
    }
    match (name, value) {
        ("max_grad_norm", Value::Null) => Meaning::ClipsNothing,
        (name, Value::Null) => {
            if is_known(name) {
                Meaning::Nothing
            } else {
                Meaning::Unknown
            }
        }
        _ => of_value(name, value),
    }
}

/// True if an argument whose value is null is a known one.
fn is_known(name: &str) -> bool {
    !matches!(of_value(name, &Value::from(0)), Meaning::Unknown)
}

fn of_value(name: &str, value: &Value) -> Meaning {
    match name {
        "per_device_train_batch_size" | "per_gpu_train_batch_size" => whole("batch", value),
        "gradient_accumulation_steps" => whole("accumulate", value),
        "max_seq_length" | "max_length" | "block_size" | "model_max_length" => whole("sequence", value),
        "seed" => whole("seed", value),
        "learning_rate" => number("lr", value),
        "weight_decay" => number("weight-decay", value),
        "max_grad_norm" => match number("clip-grad-norm", value) {
            Meaning::Field(_, norm) if norm.as_f64() <= Some(0.0) => Meaning::ClipsNothing,
            meaning => meaning,
        },
        "gradient_checkpointing" | "activation_checkpointing" => {
            flag(value, Meaning::Field("checkpoint", "blocks".into()))
        }
        "gradient_checkpointing_kwargs" | "activation_checkpointing_kwargs" => match value.get("use_reentrant") {
            Some(Value::Bool(true)) => Meaning::LeftOut("counted as use_reentrant=False"),
            _ => Meaning::Nothing,
        },
        "tf32" => flag(value, Meaning::Nothing),
        "optim" => optimizer(value),
        // Combined by the caller: several arguments make one precision.
        "bf16" | "fp16" => flag(value, Meaning::Nothing),
        "torch_dtype" | "dtype" => match value.as_str().map(plain_dtype) {
            Some("auto" | "bfloat16" | "float16" | "float32") => Meaning::Nothing,
            _ => Meaning::Refused(Some("precision")),
        },
        "attn_implementation" | "_attn_implementation" => match value.as_str() {
            Some("eager") => Meaning::Field("attention", "eager".into()),
            Some("sdpa") => Meaning::Field("attention", "sdpa".into()),
            _ => Meaning::Refused(Some("attention")),
        },
        "model_init_kwargs" => match value {
            Value::Object(_) => Meaning::Nested,
            _ => Meaning::Wrong("arguments by name"),
        },
        "accelerator_config" => match value.get("gradient_accumulation_kwargs").map(|steps| steps.get("num_steps")) {
            Some(Some(Value::Number(_))) => Meaning::Refused(Some("accumulate")),
            _ => Meaning::Nothing,
        },
        "eval_strategy" | "evaluation_strategy" => match value.as_str() {
            Some("no") => Meaning::Nothing,
            _ => Meaning::LeftOut("evaluation is not counted"),
        },
        "do_eval" | "eval_on_start" => flag(value, Meaning::LeftOut("evaluation is not counted")),
        "use_cpu" | "no_cuda" => {
            flag(value, Meaning::LeftOut("counted as on the card: on the CPU it takes none of its memory"))
        }
        "resume_from_checkpoint" if is_on(value) => Meaning::LeftOut("loading a checkpoint is not counted"),
        "resume_from_checkpoint" => Meaning::Nothing,
        "local_rank" | "tp_size" => match value.as_i64() {
            Some(..=1) if name == "tp_size" => Meaning::Nothing,
            Some(..=0) => Meaning::Nothing,
            Some(_) if name == "tp_size" => Meaning::Refused(None),
            Some(_) => Meaning::LeftOut("one process is counted; --data-parallel N counts several"),
            None => Meaning::Wrong("a whole number"),
        },
        "model_name_or_path" | "config_name" => {
            Meaning::LeftOut("nothing is downloaded: its config.json is --model-file")
        }
        _ => Meaning::Unknown,
    }
}

/// Returns a dtype's name without its module's.
pub(super) fn plain_dtype(name: &str) -> &str {
    name.strip_prefix("torch.").unwrap_or(name)
}

pub(crate) fn is_on(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.as_str(), "" | "no" | "false"),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) => true,
    }
}

fn flag(value: &Value, on: Meaning) -> Meaning {
    match value {
        Value::Bool(true) => on,
        Value::Bool(false) => Meaning::Nothing,
        _ => Meaning::Wrong("true or false"),
    }
}

fn whole(field: &'static str, value: &Value) -> Meaning {
    match value.as_u64() {
        Some(number) => Meaning::Field(field, number.into()),
        None => Meaning::Wrong("a whole number"),
    }
}

fn number(field: &'static str, value: &Value) -> Meaning {
    // YAML reads `2e-5` as a text, as Python's loader does.
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number: &f64| number.is_finite());
    match number {
        Some(number) => Meaning::Field(field, number.into()),
        None => Meaning::Wrong("a number"),
    }
}

/// Reads a name of `OptimizerNames`.
fn optimizer(value: &Value) -> Meaning {
    let known = value.as_str().and_then(OptimizerKind::of_transformers);
    known.map_or(Meaning::Refused(Some("optimizer")), |(kind, form)| Meaning::Optimizer(kind.name(), form.name()))
}
