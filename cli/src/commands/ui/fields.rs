//! The fields of a run that the page offers, from the one list of fields; help and values are those of the flags of `predict`.

use clap::CommandFactory;
use lab::changes::EXPANDABLE;
use lab::run::RunSpec;
use serde_json::{Map, Value, json};

use crate::args::{Cli, TASKS};
use crate::exit::{Failure, Result};

/// Fields that name files of this machine or its devices, or split a network over several: no request may have them.
const NOT_HERE: [&str; 13] = [
    "adversary",
    "data",
    "load",
    "resume",
    "backend",
    "device",
    "devices",
    "micro-batches",
    "cut",
    "pipeline-schedule",
    "cuda-graph",
    "tf32",
    "seed",
];

/// The controls that come first, in this order: what most people change.
const FIRST: [&str; 14] = [
    "precision",
    "optimizer",
    "checkpoint",
    "accumulate",
    "lora",
    "load-in-4bit",
    "freeze",
    "loss",
    "attention",
    "optimizer-impl",
    "alloc-conf",
    "loop",
    "data-parallel",
    "zero",
];

/// Values that a field without a list of its own has most often. A field with one of them is a switch.
const SUGGESTED: [(&str, &[&str]); 2] = [("checkpoint", &["blocks", "sqrt", "none"]), ("alloc-conf", &[EXPANDABLE])];

/// Fields that have a control of their own on the page.
const OWN: [&str; 5] = ["model", "model-file", "gpu", "batch", "sequence"];

/// The largest numbers: what a dry run takes grows with them.
const MOST: [(&str, u64); 9] = [
    ("layers", 512),
    ("accumulate", 256),
    ("steps", 256),
    ("eval-steps", 256),
    ("eval-every", 256),
    ("choices", 256),
    ("data-parallel", 4096),
    ("batch", 1 << 24),
    ("sequence", 1 << 22),
];

/// The longest text of a field. Bytes.
const MAX_TEXT: usize = 500;

/// Refuses fields that a page cannot have, and values whose dry run would take long.
///
/// # Errors
/// Naming the field.
pub(super) fn check(said: &Map<String, Value>) -> Result<()> {
    for (name, value) in said {
        if NOT_HERE.contains(&name.as_str()) {
            return Err(Failure::usage(format!("{name}: the page does not take it (vramlab predict --{name} does)")));
        }
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        if text.len() > MAX_TEXT {
            return Err(Failure::usage(format!("{name}: longer than {MAX_TEXT} bytes")));
        }
        let most = MOST.iter().find(|(known, _)| known == name).map(|(_, most)| *most);
        let number = text.trim().parse::<u64>().ok();
        if let (Some(most), Some(number)) = (most, number)
            && number > most
        {
            return Err(Failure::usage(format!("{name}: {number} is more than {most}, which the page takes")));
        }
    }
    Ok(())
}

/// The fields by task, each with its help, its kind and its values: `[{task, fields: [{name, help, kind, values}]}]`.
pub(super) fn groups() -> Vec<Value> {
    let mut predict = Cli::command();
    predict.build();
    let predict = predict.find_subcommand("predict").cloned().unwrap_or_default();
    let fields = RunSpec::default().fields();
    let offered = |name: &&str| !NOT_HERE.contains(name) && !OWN.contains(name) && fields.contains_key(*name);
    let mut left: Vec<&str> = fields.keys().map(String::as_str).filter(offered).collect();
    let tasks = TASKS.iter().map(|(task, flags)| (*task, flags.to_vec()));
    let mut groups = Vec::new();
    for (task, names) in
        std::iter::once(("First", FIRST.to_vec())).chain(tasks).chain([("Every other setting", left.clone())])
    {
        let names: Vec<&str> = names.into_iter().filter(|name| left.contains(name)).collect();
        left.retain(|name| !names.contains(name));
        let controls: Vec<Value> = names.iter().map(|name| control(&predict, name)).collect();
        if !controls.is_empty() {
            groups.push(json!({ "task": task, "fields": controls }));
        }
    }
    groups
}

/// A field as a control.
fn control(predict: &clap::Command, name: &str) -> Value {
    let arg = predict.get_arguments().find(|arg| arg.get_long() == Some(name));
    let help = arg.and_then(|arg| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let values = arg.map(|arg| arg.get_possible_values()).unwrap_or_default();
    let values: Vec<&str> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
    let kind = kind(name);
    let values = if kind == "switch" { Vec::new() } else { values };
    // A value with a number in it is not the only one of its kind.
    let closed = !values.is_empty() && !values.iter().any(|value| value.ends_with(":N"));
    let suggested = SUGGESTED.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, values)| values);
    json!({ "name": name, "help": help, "kind": kind, "values": values, "closed": closed, "suggested": suggested })
}

/// The kind of a field's values, as the field itself tells: `switch`, `number` or `text`.
fn kind(name: &str) -> &'static str {
    if RunSpec::default().fields()[name].is_boolean() {
        return "switch";
    }
    let refusal = RunSpec::default().with([(name, &Value::from("?"))]).err().map(|error| error.to_string());
    match refusal {
        Some(problem) if ["expected a whole number", "expected a number"].iter().any(|part| problem.contains(part)) => {
            "number"
        }
        _ => "text",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_run_is_offered_or_refused() {
        let groups = groups();
        let offered: Vec<&str> = groups
            .iter()
            .flat_map(|group| group["fields"].as_array().unwrap())
            .map(|field| field["name"].as_str().unwrap())
            .collect();
        for name in RunSpec::default().fields().keys() {
            let places =
                [offered.contains(&name.as_str()), NOT_HERE.contains(&name.as_str()), OWN.contains(&name.as_str())];
            assert_eq!(places.iter().filter(|here| **here).count(), 1, "{name}");
        }
        let kinds: Vec<&str> = ["load-in-4bit", "lora", "precision", "clip-grad-norm", "checkpoint"].map(kind).to_vec();
        assert_eq!(kinds, ["switch", "number", "text", "number", "text"]);
        assert_eq!(groups[0]["fields"].as_array().unwrap().len(), FIRST.len());
    }

    #[test]
    fn files_and_devices_of_the_machine_are_refused() {
        for (name, value, part) in [
            ("data", "/etc/passwd", "does not take it"),
            ("backend", "cuda", "does not take it"),
            ("layers", "100000", "more than 512"),
            ("batches", &"1,".repeat(400), "longer than"),
        ] {
            let failure = check(&Map::from_iter([(name.to_string(), value.into())])).unwrap_err();
            assert!(failure.error.to_string().contains(part), "{name}: {}", failure.error);
        }
    }
}
