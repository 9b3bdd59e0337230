//! The tables: measured figures, and what the program said of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use lab_base::bands::Basis;
use serde_json::Value;

/// Folder of the tables.
pub(super) const FOLDER: &str = "xtask/published";

/// A measured figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub id: String,
    pub(super) source: String,
    pub(super) place: String,
    pub(super) card: String,
    pub(super) release: String,
    pub(super) technique: String,
    pub(super) published: f64,
    pub(super) ran_out: bool,
    /// What the source's process takes besides reserved memory, in MiB; `None`: what the program says of the card.
    pub beside: Option<[u64; 3]>,
    pub(super) how: String,
}

/// What the program said. Bytes: least, expected and most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub(super) basis: Basis,
    /// Reserved memory, without how far a card may be from it.
    pub(super) reserved: [u64; 3],
    /// What a process takes besides.
    pub(super) beside: [u64; 3],
    pub(super) fits: String,
}

/// Reads the rows.
///
/// # Errors
/// A file that cannot be read, or a row that lacks a column.
pub fn rows(root: &Path) -> anyhow::Result<Vec<Row>> {
    let text = std::fs::read_to_string(root.join(FOLDER).join("rows.tsv"))?;
    text.lines().skip(1).map(row).collect()
}

fn row(line: &str) -> anyhow::Result<Row> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [id, source, place, card, release, technique, published, ran_out, least, usual, most, how] = columns[..] else {
        bail!("{line}: twelve columns are expected")
    };
    let beside = match least {
        "" => None,
        _ => Some([least.parse()?, usual.parse()?, most.parse()?]),
    };
    let [id, source, place, card, release, technique, how] =
        [id, source, place, card, release, technique, how].map(String::from);
    let ran_out = ran_out == "1";
    Ok(Row { id, source, place, card, release, technique, published: published.parse()?, ran_out, beside, how })
}

/// Reads what the program said, by the name of the row.
///
/// # Errors
/// A file that cannot be read, or a line that lacks a column.
pub fn answers(root: &Path) -> anyhow::Result<BTreeMap<String, Said>> {
    let text = std::fs::read_to_string(root.join(FOLDER).join("answers.tsv")).unwrap_or_default();
    text.lines().map(answer).collect()
}

fn answer(line: &str) -> anyhow::Result<(String, Said)> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [id, basis, a, b, c, d, e, f, fits] = columns[..] else { bail!("{line}: nine columns are expected") };
    let reserved = [a.parse()?, b.parse()?, c.parse()?];
    let beside = [d.parse()?, e.parse()?, f.parse()?];
    Ok((id.into(), Said { basis: named(basis)?, reserved, beside, fits: fits.into() }))
}

/// The kind of a name.
pub(super) fn named(basis: &str) -> anyhow::Result<Basis> {
    serde_json::from_value(Value::String(basis.into())).with_context(|| basis.to_string())
}
