//! The arguments that people have: transformers' `TrainingArguments`, and what scripts take beside them.
//!
//! It reads what `TrainingArguments.to_json_string()` writes, the JSON and YAML of `HfArgumentParser`, and `training_args.bin`,
//! in which nothing is run. What decides memory becomes a field of a run, or is refused by name; what has no part in
//! the memory of a training step is left alone; the rest is named. The names are those of transformers 4.40 to 5.23
//! (`training_args.py`), of its example scripts, and of TRL 0.9 to 0.24 (`SFTConfig`, `ModelConfig`).

mod file;
mod keys;

use std::path::Path;

use lab_base::error::Result;
use serde_json::{Map, Value};

use keys::{Meaning, meaning};

/// What a file of arguments asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HfArgs {
    /// Fields of a run, by name.
    pub fields: Map<String, Value>,
    /// What decides memory and cannot be represented.
    pub refusals: Vec<Refused>,
    /// What the run does not have, though the script will: sentences.
    pub left_out: Vec<String>,
    /// Names that are not known: nothing was made of them.
    pub unknown: Vec<String>,
}

/// An argument that cannot be represented.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The argument with its value.
    pub argument: String,
    /// The field of a run that would stand for it: said otherwise, it is not refused.
    pub field: Option<&'static str>,
}

/// Reads a file.
///
/// # Errors
/// [`Error::Usage`](lab_base::Error::Usage) naming the file that cannot be read, or the argument whose value makes no sense.
pub fn read(path: &Path) -> Result<HfArgs> {
    of(&file::read(path)?, &path.display().to_string())
}

fn of(arguments: &Map<String, Value>, file: &str) -> Result<HfArgs> {
    let mut found = HfArgs::default();
    for (name, value) in arguments {
        let said = || match value {
            Value::String(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        };
        match meaning(name, value) {
            Meaning::Nothing => {}
            Meaning::Unknown => found.unknown.push(name.clone()),
            Meaning::Field(field, value) => {
                found.fields.insert(field.into(), value);
            }
            Meaning::Optimizer(kind, form) => {
                found.fields.insert("optimizer".into(), kind.into());
                found.fields.insert("optimizer-impl".into(), form.into());
            }
            Meaning::Refused(field) => found.refusals.push(Refused { argument: said(), field }),
            Meaning::LeftOut(what) => found.left_out.push(format!("{} ({what})", said())),
            Meaning::Wrong(expected) => {
                return Err(lab_base::Error::usage(file, format!("{}: expected {expected}", said())));
            }
        }
    }
    let of_trainer = arguments.keys().any(|name| keys::is_the_trainers(name));
    if of_trainer {
        found.fields.insert("loop".into(), "trainer".into());
    }
    if let Some(precision) = precision(arguments) {
        found.fields.insert("precision".into(), precision.into());
    }
    Ok(found)
}

/// The types that `bf16`, `fp16` and the type of the weights come to; `None`: the file of the network decides.
fn precision(arguments: &Map<String, Value>) -> Option<&'static str> {
    let on = |name: &str| arguments.get(name) == Some(&Value::Bool(true));
    let weights = ["torch_dtype", "dtype"].iter().find_map(|name| arguments.get(*name)?.as_str());
    let weights = weights.map(|name| name.strip_prefix("torch.").unwrap_or(name));
    match (weights, on("bf16"), on("fp16")) {
        (Some("bfloat16"), true, _) => Some("bf16-autocast-bf16"),
        (_, true, _) => Some("autocast-bf16"),
        (_, _, true) => Some("autocast-fp16"),
        (Some("bfloat16"), ..) => Some("bf16"),
        (Some("float16"), ..) => Some("fp16"),
        (Some("float32"), ..) => Some("fp32"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
