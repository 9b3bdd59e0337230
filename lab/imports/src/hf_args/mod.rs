//! Reads transformers' `TrainingArguments`, and the further arguments of scripts.
//!
//! The files may be the output of `TrainingArguments.to_json_string()`, the JSON and YAML of `HfArgumentParser`, and `training_args.bin`, in which
//! nothing is executed. Arguments that decide memory become fields of a run, or are errors with their names; those without effect on the memory of a training
//! step are ignored; the rest is named. The names are those of transformers 4.40 to 5.23 (`training_args.py`, `training_args_seq2seq.py`), of its
//! example scripts, and of TRL 0.9 to 1.16 (`SFTConfig`, `ModelConfig`).

mod around;
mod file;
mod found;
mod keys;
mod liger;
mod meaning;
mod tuned;

use std::path::Path;

use lab_base::error::{Error, Result};
use serde_json::{Map, Value};

pub use around::Around;
pub(crate) use found::{Effect, said};
pub use found::{HfArgs, Refused};
pub(crate) use keys::names;
pub(crate) use liger::with_liger;
pub(crate) use meaning::is_on;

/// Reads a file. Its meaning depends on the network's file, and on the flags beside it.
///
/// # Errors
/// [`Error::Usage`] naming a file that cannot be read, or an argument with a senseless value.
pub fn read(path: &Path, around: &Around<'_>) -> Result<HfArgs> {
    counted(&file::read(path)?, &path.display().to_string(), around)
}

/// Says what arguments mean; `file` is their name, for messages.
///
/// # Errors
/// [`Error::Usage`] naming an argument with a senseless value.
pub fn counted(arguments: &Map<String, Value>, file: &str, around: &Around<'_>) -> Result<HfArgs> {
    if arguments.contains_key("architectures") && arguments.contains_key("model_type") {
        return Err(Error::usage(file, "describes a network, not arguments: vramlab predict takes it as it is"));
    }
    let mut found = HfArgs::default();
    let others = tuned::take(arguments, file, &mut found)?;
    found.take(&others, file)?;
    if found.unknown.len() == arguments.len() {
        return Err(Error::usage(file, "none of its names is an argument of transformers"));
    }
    found.unknown.sort_unstable();
    around.settle(arguments, &mut found);
    Ok(found)
}

#[cfg(test)]
mod tests;
