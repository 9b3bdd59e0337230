//! The commands as tools: the arguments of each, and the words of the command line that they become. A flag's help describes its argument.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::CommandFactory;
use serde_json::{Map, Value, json};

use super::folder::Folder;
use crate::args::Cli;

/// Use of an argument.
#[derive(Clone, Copy)]
enum Means {
    /// A flag with a number.
    Number,
    /// A flag with a word.
    Word,
    /// A flag with a file.
    File,
    /// A file without a flag.
    Positional,
    /// The standard input.
    Input,
    /// A script of the folder for scripts.
    Script,
    /// The words after the script.
    Words,
}

use Means::{File, Input, Number, Positional, Script, Word, Words};

/// Arguments by name, in the order of the command's words.
type Arguments = &'static [(&'static str, Means)];

/// A command as a tool.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// The words of the command.
    command: &'static [&'static str],
    arguments: &'static [Arguments],
    required: &'static [&'static str],
}

/// Arguments that describe a run.
const RUN: Arguments = &[
    ("model", Word),
    ("model_file", File),
    ("batch", Number),
    ("sequence", Number),
    ("gpu", Word),
    ("optimizer", Word),
    ("optimizer_impl", Word),
    ("precision", Word),
    ("checkpoint", Word),
    ("attention", Word),
    ("accumulate", Number),
    ("loss", Word),
    ("head", Word),
    ("alloc_conf", Word),
    ("like", Word),
];
const PREDICT: Arguments = &[("clip_grad_norm", Word), ("loop", Word), ("steps", Number)];
const FIT: Arguments = &[("of", Word), ("maximum", Number)];
const SHOW: Arguments = &[("file", Positional), ("device", Number), ("top", Number), ("range", Word), ("match", Word)];
const SCRIPT: Arguments =
    &[("script", Script), ("arguments", Words), ("gpu", Word), ("gpus", Number), ("steps", Number)];

const READING: [Tool; 4] = [
    Tool { name: "predict", command: &["predict"], arguments: &[RUN, PREDICT], required: &[] },
    Tool { name: "fit", command: &["fit"], arguments: &[RUN, FIT], required: &["gpu"] },
    Tool { name: "explain", command: &["explain"], arguments: &[&[("message", Input)]], required: &["message"] },
    Tool { name: "snapshot_show", command: &["snapshot", "show"], arguments: &[SHOW], required: &["file"] },
];

const REHEARSE: Tool = Tool { name: "rehearse", command: &["rehearse"], arguments: &[SCRIPT], required: &["script"] };

/// The tools that a server offers.
pub(super) fn offered(rehearse: bool) -> impl Iterator<Item = &'static Tool> {
    const LAST: &Tool = &REHEARSE;
    READING.iter().chain(rehearse.then_some(LAST))
}

/// A run of the program.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Call {
    /// The words of the command, and its flags.
    pub(super) words: Vec<OsString>,
    /// The words at the end.
    pub(super) last: Vec<OsString>,
    pub(super) input: String,
    /// True if it runs in the folder of the scripts.
    pub(super) is_script: bool,
}

impl Tool {
    /// Returns the command's description from its help.
    pub(super) fn description(&self) -> String {
        self.help().get_about().map(ToString::to_string).unwrap_or_default()
    }

    /// The arguments as a JSON schema.
    pub(super) fn schema(&self) -> Map<String, Value> {
        let help = self.help();
        let properties: Map<String, Value> =
            self.arguments().map(|(name, means)| ((*name).into(), described(&help, name, *means))).collect();
        let schema = json!({"type": "object", "properties": properties, "required": self.required, "additionalProperties": false});
        schema.as_object().cloned().unwrap_or_default()
    }

    fn arguments(&self) -> impl Iterator<Item = &'static (&'static str, Means)> {
        self.arguments.iter().copied().flatten()
    }

    fn help(&self) -> clap::Command {
        self.command
            .iter()
            .fold(Cli::command(), |command, word| command.find_subcommand(word).cloned().unwrap_or_default())
    }

    /// The run that these arguments ask for.
    ///
    /// # Errors
    /// An unknown argument, or a missing one; a value of another kind; a file that may not be read.
    pub(super) fn call(
        &self,
        given: &Map<String, Value>,
        files: &Folder,
        scripts: Option<&Folder>,
    ) -> Result<Call, String> {
        if let Some(missing) = self.required.iter().find(|name| !given.contains_key(**name)) {
            return Err(format!("{}: {missing} is missing", self.name));
        }
        let mut call = Call { words: self.command.iter().map(Into::into).collect(), ..Call::default() };
        for name in given.keys() {
            if !self.arguments().any(|(known, _)| known == name) {
                let known: Vec<&str> = self.arguments().map(|(known, _)| *known).collect();
                return Err(format!("{} has no argument {name:?}; it has {}", self.name, known.join(", ")));
            }
        }
        // In the order of the table: a script stands before its words.
        for (name, means) in self.arguments() {
            if let Some(value) = given.get(*name) {
                call.add(name, *means, value, files, scripts)?;
            }
        }
        Ok(call)
    }
}

impl Call {
    fn add(
        &mut self,
        name: &str,
        means: Means,
        value: &Value,
        files: &Folder,
        scripts: Option<&Folder>,
    ) -> Result<(), String> {
        match means {
            Number | Word => self.words.push(format!("{}={}", flag(name), scalar(name, value)?).into()),
            File => {
                let mut word = OsString::from(format!("{}=", flag(name)));
                word.push(files.file(text(name, value)?)?);
                self.words.push(word);
            }
            Positional => self.last.push(files.file(text(name, value)?)?.into()),
            Input => {
                self.input = text(name, value)?.to_string();
                self.last.push("-".into());
            }
            Script => {
                let script: PathBuf = scripts.ok_or("no scripts may be run")?.file(text(name, value)?)?;
                self.is_script = true;
                self.last.extend(["--".into(), "python3".into(), script.into()]);
            }
            Words => {
                let words = value.as_array().ok_or_else(|| format!("{name}: a list of words is expected"))?;
                for word in words {
                    self.last.push(scalar(name, word)?.into());
                }
            }
        }
        Ok(())
    }
}

fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, String> {
    value.as_str().filter(|text| !text.contains('\0')).ok_or_else(|| format!("{name}: a text is expected"))
}

/// A number or a word, as it is typed.
fn scalar(name: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::Number(number) => Ok(number.to_string()),
        value => text(name, value).map(Into::into),
    }
}

/// An argument as a JSON schema, with what the flag's help says.
fn described(help: &clap::Command, name: &str, means: Means) -> Value {
    let own = match means {
        Input => Some("PyTorch's message, or a log with it"),
        Script => Some("a Python script below the folder that was allowed; it runs with python3"),
        Words => Some("what the script is given"),
        _ => None,
    };
    let long = name.replace('_', "-");
    let arg = help.get_arguments().find(|arg| arg.get_long() == Some(long.as_str()) || arg.get_id() == name);
    let said = arg.and_then(|arg| arg.get_help()).map(ToString::to_string);
    let description = own.map(Into::into).or(said).unwrap_or_default();
    let mut schema = match means {
        Number => json!({"type": "integer"}),
        Words => json!({"type": "array", "items": {"type": "string"}}),
        _ => json!({"type": "string"}),
    };
    schema["description"] = description.into();
    let values: Vec<String> = arg
        .map(|arg| arg.get_possible_values().iter().map(|value| value.get_name().into()).collect())
        .unwrap_or_default();
    if !values.is_empty() {
        schema["enum"] = values.into();
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn every_argument_is_described() {
        for tool in offered(cfg!(target_os = "linux")) {
            assert!(!tool.description().is_empty(), "{}", tool.name);
            for (name, schema) in tool.schema()["properties"].as_object().unwrap() {
                assert!(!schema["description"].as_str().unwrap().is_empty(), "{}: {name}", tool.name);
            }
        }
        let predict = offered(false).next().unwrap().schema();
        let optimizers = predict["properties"]["optimizer"]["enum"].as_array().unwrap();
        assert!(optimizers.contains(&"adamw".into()), "{optimizers:?}");
    }

    #[test]
    fn a_value_cannot_become_a_flag_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        let files = Folder::open("dir", folder.path()).unwrap();
        let [predict, _, explain, show] = &READING;
        let call = predict.call(&map(json!({"gpu": "--html=/tmp/x", "batch": 4})), &files, None).unwrap();
        assert_eq!(call.words, ["predict", "--batch=4", "--gpu=--html=/tmp/x"]);
        let call = explain.call(&map(json!({"message": "/etc/passwd"})), &files, None).unwrap();
        assert_eq!((call.last, call.input.as_str()), (vec!["-".into()], "/etc/passwd"));
        let refused = |tool: &Tool, given| tool.call(&map(given), &files, None).unwrap_err();
        assert!(refused(predict, json!({"html": "x"})).contains("no argument"));
        assert!(refused(predict, json!({"batch": [1]})).contains("a text is expected"));
        assert!(refused(predict, json!({"model_file": "../config.json"})).contains("outside"));
        assert!(refused(show, json!({})).contains("file is missing"));
        assert!(refused(&REHEARSE, json!({"script": "config.json"})).contains("no scripts"));
    }
}
