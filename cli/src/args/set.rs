//! `--set NAME=VALUE`: any field of a run by its name, from the one list of fields (`lab::run::RunSpec`).

use lab::run::RunSpec;
use serde_json::{Map, Value};

use super::{Command, spellings};
use crate::exit::{Failure, Result};

/// Settings of PyTorch's optimizers that change no byte of memory.
const WITHOUT_EFFECT: [&str; 7] = ["eps", "betas", "beta1", "beta2", "alpha", "dampening", "lr-decay"];

/// Fields by name, and notes about what was set without effect.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Set {
    pub(super) fields: Map<String, Value>,
    pub(super) notes: Vec<String>,
}

/// Returns what `--set` of a command sets. `optimizer.lr` is the field `lr`: the words before the last dot are for the reader.
///
/// # Errors
/// Text without `=`, and names that no run has.
pub(super) fn read_set(command: &Command) -> Result<Set> {
    let asked = match command {
        Command::Train(args) => &args.training.set,
        Command::Predict(args) => &args.dry_run.training.set,
        Command::Fit(args) => &args.dry_run.training.set,
        Command::Plan(args) => &args.dry_run.training.set,
        Command::Check(args) => &args.dry_run.training.set,
        _ => return Ok(Set::default()),
    };
    read(asked)
}

fn read(asked: &[String]) -> Result<Set> {
    let mut set = Set::default();
    for text in asked {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!("--set {text}: expected NAME=VALUE, as in --set optimizer.lr=1e-4"))
        })?;
        let last = name.rsplit('.').next().unwrap_or(name);
        let field = spellings::ours(last);
        if WITHOUT_EFFECT.contains(&field.as_str()) {
            set.notes.push(format!("note: --set {name}: this changes no memory"));
            continue;
        }
        if !RunSpec::has_field(&field) {
            let fields = RunSpec::default().fields();
            let meant = lab::similar::did_you_mean(&field, fields.keys().map(String::as_str));
            return Err(Failure::usage(format!(
                "--set {name}: a run has no such setting (vramlab predict --help lists all){meant}"
            )));
        }
        RunSpec::default()
            .with([(field.as_str(), &Value::String(value.into()))])
            .map_err(|error| Failure::usage(format!("--set {name}: {error}")))?;
        set.fields.insert(field, Value::String(value.into()));
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_name() {
        let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let set =
            read(&words(&["optimizer.lr=1e-4", "batch_size=8", "optimizer.eps=1e-6", "training.precision=bfloat16"]))
                .unwrap();
        let mut fields: Vec<(&str, &str)> =
            set.fields.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        fields.sort_unstable();
        assert_eq!(fields, [("batch", "8"), ("lr", "1e-4"), ("precision", "bfloat16")]);
        assert_eq!(set.notes, ["note: --set optimizer.eps: this changes no memory"]);
        for (text, part) in [
            ("batch", "expected NAME=VALUE"),
            ("model.layrs=3", "did you mean \"layers\"?"),
            ("batch=many", "expected a whole number"),
            ("json=x", "no such setting"),
        ] {
            let failure = read(&words(&[text])).unwrap_err();
            assert!(failure.error.to_string().contains(part), "{text}: {}", failure.error);
        }
    }
}
