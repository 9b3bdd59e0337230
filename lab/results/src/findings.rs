//! Common interface of all results.

use lab_base::section::{Cell, Section, Table, tables};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::command;

/// Settings in force, by the names of the flags.
pub type Settings = Map<String, Value>;

/// Result of a command.
pub trait Findings: Serialize + DeserializeOwned {
    /// Schema name in its JSON: `vramlab-…-1`. The number changes when the new form would mislead a program that reads it.
    const SCHEMA: &'static str;

    /// Title, in a few words.
    fn title(&self) -> String;

    /// Its sections, in reading order.
    fn sections(&self) -> Vec<Section>;

    /// Several results as one answer, one entry per line; `None` if each is shown by itself.
    fn together(_found: &[Self]) -> Option<(String, Vec<Section>)> {
        None
    }

    /// Its table for CSV.
    fn table(&self) -> Option<Table> {
        tables(&self.sections()).first().map(|table| (*table).clone())
    }

    /// The CSV table of several results.
    fn table_of_all(found: &[Self]) -> Option<Table> {
        found.first().and_then(Self::table)
    }

    /// Its JSON: the schema, the answer in a sentence, then the fields.
    ///
    /// # Errors
    /// A figure that cannot be written in JSON.
    fn to_json(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(Written { schema: Self::SCHEMA, sentence: self.title(), fields: self })
    }
}

#[derive(Serialize)]
struct Written<'a, F> {
    schema: &'static str,
    /// What the first line of the terminal says.
    sentence: String,
    #[serde(flatten)]
    fields: &'a F,
}

/// The command that repeats a result, and every setting in force.
pub(super) fn again(command: &[&str], settings: &Settings) -> Section {
    let command = Section::Command(command::again(command, settings));
    Section::Details { title: "Do it again".into(), sections: vec![command, settings_table(settings)] }
}

/// Every setting in force.
pub(super) fn settings_table(settings: &Settings) -> Section {
    let in_force = settings.iter().filter(|(_, value)| !value.is_null() && **value != Value::Bool(false));
    let rows = in_force.map(|(name, value)| vec![Cell::Text(name.clone()), Cell::Text(plain(value))]).collect();
    Section::Table(Table::new("All settings in force", &["setting", "value"], rows))
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// A value in words: text as it is, everything else as JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
