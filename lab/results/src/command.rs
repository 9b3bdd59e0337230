//! The command that repeats a result, made from the settings in it: their names are those of the flags.

use lab_base::bytes;
use serde_json::{Map, Value};

/// Words of a command, each quoted for a shell if needed.
pub fn again(subcommand: &[&str], settings: &Map<String, Value>) -> String {
    let words = std::iter::once("vramlab").chain(subcommand.iter().copied()).map(quoted);
    words.chain(words_of(settings)).collect::<Vec<String>>().join(" ")
}

/// The flags alone.
pub fn flags(settings: &Map<String, Value>) -> String {
    words_of(settings).join(" ")
}

fn words_of(settings: &Map<String, Value>) -> Vec<String> {
    let mut words = Vec::new();
    for (name, value) in settings {
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => words.push(format!("--{name}")),
            Value::Array(values) => words.extend(values.iter().map(|value| flag(name, value))),
            value => words.push(flag(name, value)),
        }
    }
    words
}

/// The same in Python: the package's function takes the network first, and every other flag as a keyword.
pub fn in_python(function: &str, settings: &Map<String, Value>) -> String {
    let network = ["model-file", "model"].into_iter().find(|name| settings.contains_key(*name));
    let first = network.map(|name| literal(name, &settings[name]));
    let others = settings.iter().filter(|(name, _)| Some(name.as_str()) != network);
    let said = others.filter(|(_, value)| !value.is_null() && **value != Value::Bool(false));
    let keywords = said.map(|(name, value)| format!("{}={}", name.replace('-', "_"), literal(name, value)));
    format!("vramlab.{function}({})", first.into_iter().chain(keywords).collect::<Vec<_>>().join(", "))
}

/// A value as Python's.
fn literal(name: &str, value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".into(),
        Value::Number(number) if BYTES.contains(&name) => {
            format!("{:?}", number.as_u64().map_or(number.to_string(), bytes::typed))
        }
        // JSON's strings, numbers and lists are Python's, too.
        other => other.to_string(),
    }
}

/// Name of the command that made a run: a dry run names no backend.
pub fn of_run(settings: &Map<String, Value>) -> String {
    let said = |name: &str| settings.get(name).is_some_and(|value| !value.is_null());
    let on_device = said("backend") || said("devices");
    again(&[if on_device { "train" } else { "predict" }], settings)
}

/// Flags whose numbers are bytes.
const BYTES: [&str; 3] = ["gpu", "memory-limit", "cudnn-workspace"];

/// Flags that also stand without a value, so that one is joined to its flag.
const ALSO_ALONE: [&str; 1] = ["save-on-cpu"];

fn flag(name: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if BYTES.contains(&name) => number.as_u64().map_or(number.to_string(), bytes::typed),
        other => other.to_string(),
    };
    // A value that begins with a dash would be read as another flag.
    let joined = text.starts_with('-') || ALSO_ALONE.contains(&name);
    if joined { format!("--{name}={}", quoted(&text)) } else { format!("--{name} {}", quoted(&text)) }
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_flags_again() {
        let settings = json!({ "model": "mlp", "layers": null, "tied": false, "nesterov": true, "lr": 0.1, "save-on-cpu": "pinned",
            "model-file": "my model's.toml", "backend": "cpu" });
        let Value::Object(settings) = settings else { panic!("no object") };
        assert_eq!(
            of_run(&settings),
            "vramlab train --model mlp --nesterov --lr 0.1 --save-on-cpu=pinned --model-file 'my model'\\''s.toml' --backend cpu"
        );
        let Value::Object(settings) = json!({ "set": ["batch=1,2", "steps=3"], "seed": 0, "gpu": null }) else {
            panic!()
        };
        assert_eq!(again(&["run", "x"], &settings), "vramlab run x --set batch=1,2 --set steps=3 --seed 0");
        assert!(of_run(&settings).starts_with("vramlab predict "));
    }

    #[test]
    fn settings_are_keywords_of_python() {
        let settings = json!({ "model": "gpt2", "batch": 8, "gpu": "rtx4090", "tied": false, "load-in-4bit": true,
            "alloc-conf": "a:\"b\"", "env": ["A=b"], "memory-limit": 8_589_934_592_u64 });
        let Value::Object(settings) = settings else { panic!("no object") };
        assert_eq!(
            in_python("predict", &settings),
            "vramlab.predict(\"gpt2\", batch=8, gpu=\"rtx4090\", load_in_4bit=True, alloc_conf=\"a:\\\"b\\\"\", env=[\"A=b\"], memory_limit=\"8GiB\")"
        );
    }

    #[test]
    fn bytes_are_typed_with_a_unit() {
        let Value::Object(settings) =
            json!({ "batch": 1024, "gpu": 8_589_934_592_u64, "memory-limit": 20_000_000_000_u64 })
        else {
            panic!()
        };
        assert_eq!(again(&["fit"], &settings), "vramlab fit --batch 1024 --gpu 8GiB --memory-limit 20GB");
    }
}
