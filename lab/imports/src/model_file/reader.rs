//! Reads the tables of a model file; errors name the line.

use std::ops::Range;

use lab_base::error::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Largest size in a file: products of two of them still fit 64 bits.
const MAX_NUMBER: u64 = 1 << 31;

/// A file's name and text.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl Text<'_> {
    /// Makes an error at a byte of the text: `name:line: what: problem`.
    pub(super) fn error(self, at: usize, what: &str, problem: impl Into<String>) -> Error {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        let place = format!("{}:{line}", self.name);
        Error::usage(if what.is_empty() { place } else { format!("{place}: {what}") }, problem)
    }
}

/// One table: its name in errors, its beginning, its contents.
pub(super) struct Section<'a> {
    text: Text<'a>,
    at: usize,
    title: String,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(text: Text<'a>, at: usize, title: impl Into<String>, table: &'a DeTable<'a>) -> Self {
        Self { text, at, title: title.into(), table }
    }

    /// Returns the same table under another name.
    pub(super) fn titled(self, title: String) -> Self {
        Self { title, ..self }
    }

    /// Makes an error about the table as a whole.
    pub(super) fn error(&self, problem: impl Into<String>) -> Error {
        self.text.error(self.at, &self.title, problem)
    }

    /// Makes an error about a key; about the table if the key is absent.
    pub(super) fn key_error(&self, key: &str, problem: impl Into<String>) -> Error {
        let at = self.table.get(key).map_or(self.at, |value| value.span().start);
        let what = if self.title.is_empty() { format!("key {key}") } else { format!("{}, key {key}", self.title) };
        self.text.error(at, &what, problem)
    }

    /// Fails with the first key that is not among `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<()> {
        let unknown = self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let problem = format!("unknown key {:?}; known: {}", key.get_ref(), known.join(", "));
                Err(self.text.error(key.span().start, &self.title, problem))
            }
        }
    }

    /// Returns the value of a key that must exist.
    pub(super) fn required<T>(&self, key: &str, value: Option<T>, example: &str) -> Result<T> {
        value.ok_or_else(|| self.error(format!("key {key} is missing; for example: {key} = {example}")))
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    fn wrong(&self, key: &str, value: &DeValue<'_>, expected: &str) -> Error {
        self.key_error(key, format!("is {}, expected {expected}", described(value)))
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&'a str>> {
        self.value(key)
            .map(|value| match value.get_ref() {
                DeValue::String(text) => Ok(text.as_ref()),
                other => Err(self.wrong(key, other, "a string")),
            })
            .transpose()
    }

    /// Reads `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.value(key)
            .map(|value| match value.get_ref() {
                DeValue::Boolean(flag) => Ok(*flag),
                other => Err(self.wrong(key, other, "true or false")),
            })
            .transpose()
    }

    /// Reads a finite number of at least 0.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number: Option<f64> = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(_) => integer(value.get_ref()).map(|i| i as f64),
            other => return Err(self.wrong(key, other, "a number")),
        };
        match number {
            Some(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => Err(self.key_error(key, "must be a finite number of at least 0")),
        }
    }

    /// Reads an integer of at least `least`.
    pub(super) fn whole(&self, key: &str, least: u64) -> Result<Option<u64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        self.whole_value(key, value.get_ref(), least).map(Some)
    }

    fn whole_value(&self, key: &str, value: &DeValue<'_>, least: u64) -> Result<u64> {
        if !matches!(value, DeValue::Integer(_)) {
            return Err(self.wrong(key, value, "an integer"));
        }
        match integer(value).and_then(|i| u64::try_from(i).ok()) {
            Some(i) if (least..=MAX_NUMBER).contains(&i) => Ok(i),
            _ => Err(self.key_error(key, format!("is {}, expected {least} to {MAX_NUMBER}", described(value)))),
        }
    }

    /// Reads a size: an integer of at least 1.
    pub(super) fn size(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.whole(key, 1)?.map(|i| i as usize))
    }

    /// Reads height and width: one integer for both, or two.
    pub(super) fn pair(&self, key: &str, least: u64) -> Result<Option<[usize; 2]>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Array(list) => match list.iter().collect::<Vec<_>>().as_slice() {
                [h, w] => Ok(Some([
                    self.whole_value(key, h.get_ref(), least)? as usize,
                    self.whole_value(key, w.get_ref(), least)? as usize,
                ])),
                _ => Err(self.key_error(key, "is a list of another length, expected [height, width]")),
            },
            both @ DeValue::Integer(_) => {
                let both = self.whole_value(key, both, least)? as usize;
                Ok(Some([both, both]))
            }
            other => Err(self.wrong(key, other, "an integer or [height, width]")),
        }
    }

    /// Reads a list of sizes, not empty.
    pub(super) fn sizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Array(list) if !list.is_empty() => {
                let size = |item: &Spanned<DeValue<'_>>| Ok(self.whole_value(key, item.get_ref(), 1)? as usize);
                list.iter().map(size).collect::<Result<Vec<usize>>>().map(Some)
            }
            other => Err(self.wrong(key, other, "a list of sizes such as [3, 32, 32]")),
        }
    }

    /// Reads a list of strings.
    pub(super) fn strings(&self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let DeValue::Array(list) = value.get_ref() else {
            return Err(self.wrong(key, value.get_ref(), "a list of strings"));
        };
        let string = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            other => Err(self.wrong(key, other, "a string in this list")),
        };
        list.iter().map(string).collect::<Result<Vec<String>>>().map(Some)
    }

    /// Reads a table inside this one.
    pub(super) fn table(&self, key: &'static str) -> Result<Option<Section<'a>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(self.inner(format!("[{key}]"), value.span(), table))),
            other => Err(self.wrong(key, other, &format!("a table [{key}]"))),
        }
    }

    /// Reads the tables of a list, in order.
    pub(super) fn tables(&self, key: &'static str) -> Result<Vec<Section<'a>>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Array(list) = value.get_ref() else {
            return Err(self.wrong(key, value.get_ref(), &format!("tables [[{key}]]")));
        };
        let table = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(table) => Ok(self.inner(String::new(), item.span(), table)),
            other => Err(self.wrong(key, other, &format!("tables [[{key}]]"))),
        };
        list.iter().map(table).collect()
    }

    fn inner(&self, title: String, span: Range<usize>, table: &'a DeTable<'a>) -> Section<'a> {
        Section::new(self.text, span.start, title, table)
    }
}

fn integer(value: &DeValue<'_>) -> Option<i128> {
    let DeValue::Integer(integer) = value else { return None };
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Formats a value for an error message.
fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string {text:?}"),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(list) if list.is_empty() => "an empty list".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}
