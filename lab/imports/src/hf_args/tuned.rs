//! Adapters and weights of few bits: arguments of TRL's `ModelConfig`, which decide together.

use lab_base::error::{Error, Result};
use lab_models::LORA_SWITCHES;
use serde_json::{Map, Value};

use super::found::{HfArgs, Refused, said};
use super::meaning::is_on;

/// `ModelConfig`'s own, unless the arguments say.
const RANK: u64 = 16;
const DROPOUT: f64 = 0.05;

/// Arguments that are read here.
const READ: &[&str] = &[
    "use_peft",
    "lora_r",
    "lora_dropout",
    "lora_target_modules",
    "lora_modules_to_save",
    "load_in_4bit",
    "load_in_8bit",
    "use_bnb_nested_quant",
];

/// An argument that decides which parameters the adapters have; it is not supported.
const OF_PARAMETERS: &str = "lora_target_parameters";

/// Takes these arguments from all; returns the others.
pub(super) fn take(arguments: &Map<String, Value>, file: &str, found: &mut HfArgs) -> Result<Map<String, Value>> {
    let on = |name: &str| arguments.get(name).is_some_and(is_on);
    if on("use_peft") {
        adapters(arguments, file, found)?;
    }
    for (name, field) in
        [("load_in_4bit", "load-in-4bit"), ("load_in_8bit", "load-in-8bit"), ("use_bnb_nested_quant", "double-quant")]
    {
        // Nested scales are those of 4 bits.
        if on(name) && (name != "use_bnb_nested_quant" || on("load_in_4bit")) {
            found.fields.insert(field.into(), true.into());
        }
    }
    if on("load_in_4bit") && on("load_in_8bit") {
        return Err(Error::usage(file, "load_in_4bit=true and load_in_8bit=true: weights have one of them"));
    }
    if on("load_in_4bit") || on("load_in_8bit") {
        let what = "weights of 4 or 8 bits (counted as PEFT prepares them, with adapters, norms and embeddings in float32; SFTTrainer makes the \
                    adapters bfloat16)";
        found.left_out.push(what.into());
    }
    if let Some(kept) = arguments.get("bnb_4bit_quant_storage").filter(|kept| is_on(kept) && **kept != "uint8") {
        found.refusals.push(Refused { argument: said("bnb_4bit_quant_storage", kept), field: None });
    }
    let is_read = |name: &str| READ.contains(&name) || LORA_SWITCHES.iter().any(|switch| switch.peft == name);
    let others = arguments.iter().filter(|(name, _)| !is_read(name));
    Ok(others.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn adapters(arguments: &Map<String, Value>, file: &str, found: &mut HfArgs) -> Result<()> {
    let given = |name: &str| arguments.get(name).filter(|value| !value.is_null());
    let wrong = |name: &str, value: &Value, expected: &str| {
        Error::usage(file, format!("{}: expected {expected}", said(name, value)))
    };
    let rank = given("lora_r").map_or(Ok(RANK), |value| {
        value.as_u64().filter(|rank| *rank > 0).ok_or_else(|| wrong("lora_r", value, "a whole number from 1"))
    })?;
    let dropout = given("lora_dropout").map_or(Ok(DROPOUT), |value| {
        let dropout = value.as_f64().filter(|dropout| (0.0..1.0).contains(dropout));
        dropout.ok_or_else(|| wrong("lora_dropout", value, "a number from 0, below 1"))
    })?;
    found.fields.insert("lora".into(), rank.into());
    if dropout > 0.0 {
        found.fields.insert("lora-dropout".into(), dropout.into());
    }
    for switch in LORA_SWITCHES.iter().filter(|switch| given(switch.peft).is_some_and(is_on)) {
        found.fields.insert(switch.field.into(), true.into());
    }
    if let Some(value) = given("lora_target_modules") {
        match targets(value) {
            Some(names) => drop(found.fields.insert("lora-target".into(), names.into())),
            None => found
                .refusals
                .push(Refused { argument: said("lora_target_modules", value), field: Some("lora-target") }),
        }
    }
    if let Some(names) = given("lora_modules_to_save").and_then(targets) {
        found.fields.insert("modules-to-save".into(), names.into());
    }
    if let Some(value) = given(OF_PARAMETERS).filter(|value| is_on(value)) {
        found.refusals.push(Refused { argument: said(OF_PARAMETERS, value), field: None });
    }
    Ok(())
}

/// Returns the names of layers; `None` of a regular expression.
fn targets(value: &Value) -> Option<String> {
    let names: Vec<&str> = match value {
        Value::String(text) => text.split([',', ' ']).filter(|name| !name.is_empty()).collect(),
        Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    let is_pattern = |text: &&str| text.contains(['*', '|', '\\', '(', '[', '^', '$', '+', '?']);
    (!names.is_empty() && !names.iter().any(is_pattern)).then(|| names.join(","))
}
