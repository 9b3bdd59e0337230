//! The arguments that people have: transformers' `TrainingArguments`, and what scripts take beside them.
//!
//! It reads what `TrainingArguments.to_json_string()` writes, the JSON and YAML of `HfArgumentParser`, and `training_args.bin`,
//! in which nothing is run. What decides memory becomes a field of a run, or is refused by name; what has no part in
//! the memory of a training step is left alone; the rest is named. The names are those of transformers 4.40 to 5.23
//! (`training_args.py`, `training_args_seq2seq.py`), of its example scripts, and of TRL 0.9 to 1.16 (`SFTConfig`, `ModelConfig`).

mod around;
mod file;
mod keys;
mod meaning;

use std::path::Path;

use lab_base::error::{Error, Result};
use serde_json::{Map, Value};

pub use around::Around;
use meaning::{Meaning, meaning};

/// What a file of arguments asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HfArgs {
    /// Fields of a run, by name.
    pub fields: Map<String, Value>,
    /// What decides memory and cannot be represented.
    pub refusals: Vec<Refused>,
    /// What the run does not have, though the script will, or has otherwise: sentences.
    pub left_out: Vec<String>,
    /// Names that are not known: nothing was made of them.
    pub unknown: Vec<String>,
    /// `max_grad_norm` is 0 or null.
    clips_nothing: bool,
}

/// An argument that cannot be represented.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The argument with its value.
    pub argument: String,
    /// The field of a run that would stand for it: said otherwise, it is not refused.
    pub field: Option<&'static str>,
}

/// Reads a file. What it comes to depends on the network's file, and on the flags beside it.
///
/// # Errors
/// [`Error::Usage`] naming the file that cannot be read, or the argument whose value makes no sense.
pub fn read(path: &Path, around: &Around<'_>) -> Result<HfArgs> {
    of(&file::read(path)?, &path.display().to_string(), around)
}

fn of(arguments: &Map<String, Value>, file: &str, around: &Around<'_>) -> Result<HfArgs> {
    if arguments.contains_key("architectures") && arguments.contains_key("model_type") {
        return Err(Error::usage(file, "describes a network, not arguments: it is for --model-file"));
    }
    let mut found = HfArgs::default();
    found.take(arguments, file)?;
    if found.unknown.len() == arguments.len() {
        return Err(Error::usage(file, "none of its names is an argument of transformers"));
    }
    found.unknown.sort_unstable();
    around.settle(arguments, &mut found);
    Ok(found)
}

impl HfArgs {
    fn take(&mut self, arguments: &Map<String, Value>, file: &str) -> Result<()> {
        for (name, value) in arguments {
            let said = || said(name, value);
            match meaning(name, value) {
                Meaning::Nothing => {}
                Meaning::Unknown => self.unknown.push(name.clone()),
                Meaning::Field(field, value) => {
                    self.fields.insert(field.into(), value);
                }
                Meaning::Optimizer(kind, form) => {
                    self.fields.insert("optimizer".into(), kind.into());
                    self.fields.insert("optimizer-impl".into(), form.into());
                }
                Meaning::ClipsNothing => self.clips_nothing = true,
                Meaning::Nested => {
                    if let Value::Object(inner) = value {
                        self.take(inner, file)?;
                    }
                }
                Meaning::Refused(field) => self.refusals.push(Refused { argument: said(), field }),
                Meaning::LeftOut(what) => self.left_out.push(format!("{} ({what})", said())),
                Meaning::Wrong(expected) => {
                    return Err(Error::usage(file, format!("{}: expected {expected}", said())));
                }
            }
        }
        Ok(())
    }
}

/// An argument as it is written; of a long value its beginning.
fn said(name: &str, value: &Value) -> String {
    const MOST: usize = 80;
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{name}={}…", &text[..end]),
        None => format!("{name}={text}"),
    }
}

#[cfg(test)]
mod tests;
