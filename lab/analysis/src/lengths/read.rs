//! Lengths from text: numbers, or lines of JSON with a column.

use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::files;
use serde_json::Value;

use super::{Lengths, MOST_EXAMPLES};

/// The largest file.
const MOST_BYTES: u64 = 1 << 30;

/// Columns that hold lengths or tokens, the first that a line has: transformers' names.
const COLUMNS: [&str; 4] = ["length", "lengths", "num_tokens", "input_ids"];

/// Reads the length of each example from a file: whole numbers between spaces, commas or lines, a JSON list, or lines of JSON. A list stands for its number of elements.
///
/// `column`: the name in a line of JSON; by default `length`, `lengths`, `num_tokens` or `input_ids`.
///
/// # Errors
/// A file that cannot be read, and [`Error::Usage`] that names the first example without a length.
pub fn read(file: &Path, column: Option<&str>) -> Result<Lengths> {
    refuse_tables(file, column)?;
    let text = files::text(file, MOST_BYTES, "lengths")?;
    parsed(&text, column)
}

/// The ends of tables that Python reads, with the function of pandas that does.
const TABLES: [(&str, &str); 3] = [("parquet", "read_parquet"), ("arrow", "read_feather"), ("feather", "read_feather")];

/// An error for a table, with the command that writes its lengths as text.
fn refuse_tables(file: &Path, column: Option<&str>) -> Result<()> {
    let end = file.extension().and_then(|end| end.to_str()).unwrap_or_default();
    let Some((_, reads)) = TABLES.iter().find(|(table, _)| end.eq_ignore_ascii_case(table)) else { return Ok(()) };
    let column = column.unwrap_or("input_ids");
    Err(problem(format!(
        "vramlab does not read {end} files. This writes the lengths as text: python -c \"import pandas, sys; c = pandas.{reads}(sys.argv[1])[sys.argv[2]]; \
         print(*(c.str.len() if c.dtype == object else c), sep='\\n')\" {} {column} > lengths.txt",
        file.display()
    )))
}

fn parsed(text: &str, column: Option<&str>) -> Result<Lengths> {
    let first = text.trim_start().chars().next();
    let lengths = match first {
        Some('[') => list(text)?,
        Some('{') => lines(text, column)?,
        _ => numbers(text)?,
    };
    Lengths::new(lengths)
}

fn problem(text: impl Into<String>) -> Error {
    Error::usage("example-lengths", text.into())
}

fn numbers(text: &str) -> Result<Vec<usize>> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let number = |(at, word): (usize, &str)| {
        word.parse().map_err(|_| problem(format!("number {} is {word:?}: expected a number of tokens", at + 1)))
    };
    words.take(MOST_EXAMPLES + 1).enumerate().map(number).collect()
}

fn list(text: &str) -> Result<Vec<usize>> {
    let Value::Array(all) = json(text, 1)? else { return Err(problem("expected a list")) };
    all.iter().enumerate().map(|(at, value)| length(value, at + 1)).collect()
}

fn lines(text: &str, column: Option<&str>) -> Result<Vec<usize>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let one = |(at, line): (usize, &str)| {
        let value = json(line, at + 1)?;
        let found = match column {
            Some(name) => value.get(name),
            None => COLUMNS.iter().find_map(|name| value.get(name)),
        };
        let named = column.map_or_else(|| COLUMNS.join(", "), String::from);
        length(found.ok_or_else(|| problem(format!("line {} has none of: {named} (--column)", at + 1)))?, at + 1)
    };
    lines.take(MOST_EXAMPLES + 1).map(one).collect()
}

fn json(text: &str, line: usize) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| problem(format!("line {line} is not JSON: {error}")))
}

/// A number, or the number of a list's elements.
fn length(value: &Value, example: usize) -> Result<usize> {
    let found = match value {
        Value::Array(elements) => Some(elements.len()),
        other => other.as_u64().and_then(|length| usize::try_from(length).ok()),
    };
    found.ok_or_else(|| problem(format!("example {example} is neither a number of tokens nor a list of them")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_lists_and_columns() {
        let expected = Lengths::new(vec![3, 1, 2]).unwrap();
        let tokens = "{\"text\": \"a\", \"input_ids\": [5, 6, 7]}\n{\"input_ids\": [1]}\n\n{\"input_ids\": [1, 2]}\n";
        for text in [
            "3\n1\n2\n",
            "3, 1,2",
            "[3, 1, 2]",
            "[[5, 6, 7], [1], 2]",
            tokens,
            "{\"length\": 3}\n{\"length\": 1}\n{\"length\": 2}",
        ] {
            assert_eq!(parsed(text, None).unwrap(), expected, "{text}");
        }
        assert_eq!(parsed("{\"n\": 3}\n{\"n\": 1}\n{\"n\": 2}", Some("n")).unwrap(), expected);
    }

    #[test]
    fn a_table_is_an_error_with_the_command_that_makes_text_of_it() {
        let of = |name: &str, column| read(Path::new(name), column).unwrap_err().to_string();
        let parquet = of("train-0001.parquet", None);
        assert!(
            parquet.contains("read_parquet") && parquet.contains("train-0001.parquet input_ids > lengths.txt"),
            "{parquet}"
        );
        let arrow = of("data.arrow", Some("tokens"));
        assert!(arrow.contains("read_feather") && arrow.contains("data.arrow tokens >"), "{arrow}");
    }

    #[test]
    fn names_what_is_no_length() {
        let cases = [
            ("", None, "no example"),
            ("3 x", None, "number 2 is \"x\""),
            ("3 -1", None, "number 2"),
            ("{\"text\": \"a\"}", None, "line 1 has none of: length, lengths, num_tokens, input_ids"),
            ("{\"length\": 1}\n{\"n\": 1}", None, "line 2"),
            ("{\"length\": 1}", Some("tokens"), "none of: tokens"),
            ("{\"length\": 1.5}", None, "example 1 is neither"),
            ("{\"length\": 1", None, "line 1 is not JSON"),
            ("[1, \"a\"]", None, "example 2"),
        ];
        for (text, column, part) in cases {
            let error = parsed(text, column).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{text}: {error}");
        }
    }
}
