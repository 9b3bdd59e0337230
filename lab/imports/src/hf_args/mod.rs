//! The arguments that people have: transformers' `TrainingArguments`, and what scripts take beside them.
//!
//! It reads what `TrainingArguments.to_json_string()` writes, the JSON and YAML of `HfArgumentParser`, and `training_args.bin`,
//! in which nothing is run. What decides memory becomes a field of a run, or is refused by name; what has no part in
//! the memory of a training step is left alone; the rest is named. The names are those of transformers 4.40 to 5.23
//! (`training_args.py`, `training_args_seq2seq.py`), of its example scripts, and of TRL 0.9 to 1.16 (`SFTConfig`, `ModelConfig`).

mod around;
mod file;
mod found;
mod keys;
mod meaning;

use std::path::Path;

use lab_base::error::{Error, Result};
use serde_json::{Map, Value};

pub use around::Around;
pub use found::{HfArgs, Refused};

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

#[cfg(test)]
mod tests;
