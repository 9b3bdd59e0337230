//! Flags of a run out of a lock file, and into it.

use std::ffi::OsString;

use clap::{ArgAction, Command, CommandFactory, FromArgMatches};
use serde_json::{Map, Value};

use super::Cli;
use super::words::{first_line, given};
use crate::exit::Failure;

/// Flags that say what to check and where results go; all others say what is run.
const NOT_THE_RUNS: [&str; 14] = [
    "baseline",
    "update",
    "name",
    "tolerance",
    "strict",
    "json",
    "export-csv",
    "export-markdown",
    "config",
    "quiet",
    "verbose",
    "color",
    "help",
    "version",
];

/// The flags of a command line that say what is run, by name: text, or `true` for a switch.
///
/// # Errors
/// Words that are no `check`; values that are no text.
pub(crate) fn run_flags(words: &[OsString]) -> Result<Map<String, Value>, Failure> {
    let matches = Cli::command().try_get_matches_from(words).map_err(|error| Failure::usage(first_line(&error)))?;
    let mut flags = Map::new();
    let Some((_, matches)) = matches.subcommand() else { return Ok(flags) };
    for argument in arguments() {
        let (id, Some(name)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        if NOT_THE_RUNS.contains(&name) || !given(matches, id) {
            continue;
        }
        let value = match argument.get_action() {
            ArgAction::SetTrue => Value::Bool(true),
            ArgAction::Append => {
                let words = matches.get_raw(id).into_iter().flatten().map(|word| word.to_str().map(Value::from));
                let words: Option<Vec<Value>> = words.collect();
                words.map(Value::Array).ok_or_else(|| not_text(name))?
            }
            _ => {
                // Of several the last one counts.
                let word = matches.get_raw(id).and_then(Iterator::last).and_then(|word| word.to_str());
                Value::from(word.ok_or_else(|| not_text(name))?)
            }
        };
        flags.insert(name.into(), value);
    }
    Ok(flags)
}

fn not_text(name: &str) -> Failure {
    Failure::usage(format!("--{name}: a lock file holds text only"))
}

/// The command line with the flags of a lock file before the typed ones, which win.
///
/// # Errors
/// Flags that say nothing of a run, values that they cannot have.
pub(crate) fn with_flags(words: &[OsString], flags: &Map<String, Value>) -> Result<Cli, Failure> {
    let typed = run_flags(words)?;
    let known = arguments();
    let mut between: Vec<OsString> = Vec::new();
    for (name, value) in flags {
        let argument = known.iter().find(|argument| argument.get_long() == Some(name));
        let argument = argument.filter(|_| !NOT_THE_RUNS.contains(&name.as_str()));
        let unknown = || Failure::usage(format!("flags.{name}: no flag of a run"));
        let action = argument.ok_or_else(unknown)?.get_action();
        let (switch, several) = (matches!(action, ArgAction::SetTrue), matches!(action, ArgAction::Append));
        let rival = match name.as_str() {
            "model" => "model-file",
            "model-file" => "model",
            _ => name,
        };
        match (switch, value) {
            _ if typed.contains_key(name) || typed.contains_key(rival) => {}
            (true, Value::Bool(true)) => between.push(format!("--{name}").into()),
            (false, Value::Array(values)) if several && values.iter().all(Value::is_string) => {
                between.extend(values.iter().filter_map(Value::as_str).map(|value| format!("--{name}={value}").into()));
            }
            (false, Value::String(value)) => between.push(format!("--{name}={value}").into()),
            (true, _) => return Err(Failure::usage(format!("flags.{name}: expected true, found {value}"))),
            (false, _) => return Err(Failure::usage(format!("flags.{name}: expected text, found {value}"))),
        }
    }
    let at = words.iter().position(|word| *word == *"check").map_or(words.len(), |i| i + 1);
    let words: Vec<OsString> = words[..at].iter().cloned().chain(between).chain(words[at..].iter().cloned()).collect();
    let matches = Cli::command().try_get_matches_from(words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_err(|error| Failure::usage(format!("flags: {}", first_line(&error))))
}

fn arguments() -> Vec<clap::Arg> {
    let mut root = Cli::command();
    root.build();
    let check: Option<&Command> = root.find_subcommand("check");
    check.map(|check| check.get_arguments().cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{CheckArgs, Command as Commands};
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn check(cli: Cli) -> CheckArgs {
        match cli.command {
            Commands::Check(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_says_the_run_is_kept_and_repeated() {
        let line = "vramlab check --baseline f --name a --tolerance 1% --model gpt --batch 2 --batch 4 --tied -q";
        let flags = run_flags(&words(line)).unwrap();
        let expected = [("model", Value::from("gpt")), ("batch", "4".into()), ("tied", true.into())];
        assert_eq!(flags.len(), expected.len(), "{flags:?}");
        expected.iter().for_each(|(name, value)| assert_eq!(flags[*name], *value));
        let again = check(with_flags(&words("vramlab check --baseline f"), &flags).unwrap());
        assert_eq!((again.paper.training.batch, again.paper.model.tied), (Some(4), true));
        let typed = check(with_flags(&words("vramlab -v check --baseline f --batch 9"), &flags).unwrap());
        assert_eq!((typed.paper.training.batch, typed.paper.model.model.as_deref()), (Some(9), Some("gpt")));
        let file = check(with_flags(&words("vramlab check --baseline f --model-file m.toml"), &flags).unwrap());
        assert!(file.paper.model.model.is_none() && file.paper.model.model_file.is_some());
        let line = "vramlab check --baseline f --env CUBLASLT_WORKSPACE_SIZE=32 --env CUBLAS_WORKSPACE_CONFIG=:0:0";
        let several = run_flags(&words(line)).unwrap();
        let again = check(with_flags(&words("vramlab check --baseline f"), &several).unwrap());
        assert_eq!(again.paper.profile.env.len(), 2);
        let typed = check(with_flags(&words("vramlab check --baseline f --env A=b"), &several).unwrap());
        assert_eq!(typed.paper.profile.env, [("A".to_string(), "b".to_string())]);
    }

    #[test]
    fn a_file_cannot_say_more_than_what_is_run() {
        let refused = |name: &str, value: Value| {
            let flags = Map::from_iter([(name.to_string(), value)]);
            format!("{:#}", with_flags(&words("vramlab check --baseline f"), &flags).unwrap_err().error)
        };
        for name in ["baseline", "json", "update", "abacus", "config"] {
            assert!(refused(name, "x".into()).contains("no flag of a run"), "{name}");
        }
        assert!(refused("batch", 4.into()).contains("flags.batch: expected text"));
        assert!(refused("tied", "yes".into()).contains("flags.tied: expected true"));
        assert!(refused("batch", "many".into()).contains("invalid value 'many'"));
    }
}
