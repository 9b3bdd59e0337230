//! Workspaces of cuDNN that an H100 took, beside those that cuDNN named without a card.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use lab_base::bands::range_bytes;
use lab_base::cards::Card;
use serde_json::Value;

/// What was measured, and what `scripts/rehearse/workspaces.py` asked for.
const MEASURED: &str = "benches/results/2026-11-26-h100-cudnn-workspaces.json";
const ASKED: &str = "benches/results/2026-11-29-h100-cudnn-asked.json";

/// Where an answer is from, in the order of the file.
const SOURCES: [&str; 5] = [
    "nobody was asked",
    "cuDNN",
    "cuDNN, but for cuBLASLt's part",
    "cuDNN, of an engine of this capability alone",
    "PyTorch's own kernel",
];

/// Sources whose workspaces may differ on a card.
const IN_A_RANGE: [usize; 2] = [2, 3];

/// A workspace. Bytes.
#[derive(Clone, Copy, Debug)]
pub struct Workspace {
    source: usize,
    measured: u64,
    asked: u64,
}

impl Workspace {
    /// Bytes between the card and the answer.
    pub fn off_by(&self) -> u64 {
        self.measured.abs_diff(self.asked)
    }

    /// Bytes by which the card may differ, as the answer says.
    fn range(&self) -> u64 {
        let multiprocessors = Card::named("h100").map_or(0, |card| card.multiprocessors);
        if IN_A_RANGE.contains(&self.source) { range_bytes(multiprocessors) } else { 0 }
    }

    /// True if the card is inside of what the answer says.
    pub fn is_inside(&self) -> bool {
        self.off_by() <= self.range()
    }
}

/// Every workspace that was measured.
///
/// # Errors
/// Files that cannot be read, or do not belong to each other.
pub fn workspaces(root: &Path) -> anyhow::Result<Vec<Workspace>> {
    let read = |path: &str| -> anyhow::Result<Value> { Ok(serde_json::from_slice(&std::fs::read(root.join(path))?)?) };
    let (measured, asked) = (read(MEASURED)?, read(ASKED)?);
    ensure!(MEASURED.ends_with(asked["measured"].as_str().unwrap_or("?")), "{ASKED} is of another file");
    let columns: Vec<&str> =
        measured["columns"].as_array().context("columns")?.iter().filter_map(Value::as_str).collect();
    let rows = |of: &Value| of["rows"].as_array().cloned().context("rows");
    let (card, answers) = (rows(&measured)?, rows(&asked)?);
    ensure!(card.len() == answers.len(), "{ASKED} has other rows");
    let mut found = Vec::new();
    for (row, answer) in card.iter().zip(&answers) {
        for (place, direction) in asked["columns"].as_array().context("columns")?.iter().enumerate() {
            let column = columns.iter().position(|name| *direction == **name).context("a direction")?;
            let number = |value: &Value| value.as_u64().context("a number");
            let source = usize::try_from(number(&answer[place][0])?)?;
            found.push(Workspace { source, measured: number(&row[column])?, asked: number(&answer[place][2])? });
        }
    }
    Ok(found)
}

/// Numbers of them that are off by so much at most: by nothing, 512 bytes, 10 MiB.
pub fn within(found: &[Workspace]) -> [usize; 3] {
    [0, 512, 10 << 20].map(|limit| found.iter().filter(|one| one.off_by() <= limit).count())
}

/// Writes the counts.
pub(super) fn write(out: &mut String, root: &Path) -> anyhow::Result<()> {
    let found = workspaces(root)?;
    let [_, near, _] = within(&found);
    let outside = found.iter().filter(|one| !one.is_inside()).count();
    let range = found.iter().map(Workspace::range).max().unwrap_or(0);
    writeln!(
        out,
        "\n## Workspaces of cuDNN on an H100\n\nAn H100 took {} workspaces (`{MEASURED}`). cuDNN named them without a card (`{ASKED}`). Of the {} that are more than 512 bytes off, \
         {outside} are outside the range of {range} bytes that an answer states.\n",
        found.len(),
        found.len() - near
    )?;
    writeln!(
        out,
        "| named by | figures | equal | within 512 bytes | within 10 MiB | farthest, bytes |\n|---|---|---|---|---|---|"
    )?;
    let mut row = |name: &str, of: &[Workspace]| {
        let [equal, near, far] = within(of);
        let most = of.iter().map(Workspace::off_by).max().unwrap_or(0);
        writeln!(out, "| {name} | {} | {equal} | {near} | {far} | {most} |", of.len())
    };
    row("all", &found)?;
    for (source, name) in SOURCES.iter().enumerate() {
        let of: Vec<Workspace> = found.iter().filter(|one| one.source == source).copied().collect();
        if !of.is_empty() {
            row(name, &of)?;
        }
    }
    Ok(())
}
