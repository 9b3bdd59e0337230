//! The files below `benches/results`, the newest of each kind first.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

/// A file of rows.
#[derive(Clone, Debug)]
pub struct File {
    /// Its name, without the folder.
    pub name: String,
    /// The rest of the file: date, host, command, rooflines.
    pub head: Value,
    /// The measurements.
    pub rows: Vec<Value>,
}

/// Every file.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Benchmarks, newest first.
    pub benches: Vec<File>,
    /// Comparisons with other programs, newest first.
    pub peers: Vec<File>,
}

impl Results {
    /// Reads a folder: `DATE-….json` are benchmarks, `DATE-….jsonl` comparisons.
    ///
    /// # Errors
    /// Files that cannot be read, or are not JSON.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        paths.sort();
        let mut results = Self::default();
        for path in paths.iter().rev() {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let text = || std::fs::read_to_string(path).with_context(|| name.clone());
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => results.benches.push(of_json(name.clone(), &text()?).context(name)?),
                Some("jsonl") => results.peers.push(of_lines(name.clone(), &text()?).context(name)?),
                _ => {}
            }
        }
        Ok(results)
    }

    /// The newest comparison in which this project ran on `device`.
    pub fn newest_peers(&self, device: &str) -> Option<&File> {
        let is_ours = |row: &Value| row["peer"] == "vramlab" && row["device"] == device;
        self.peers.iter().find(|file| !file.has_options() && file.rows.iter().any(is_ours))
    }

    /// The newest comparison with PyTorch under several of its options, on a processor that multiplies bf16 itself or on one that does not.
    pub fn newest_tuned(&self, multiplies_bf16: bool) -> Option<&File> {
        let is_wanted = |file: &&File| file.has_options() && file.multiplies_bf16() == multiplies_bf16;
        self.peers.iter().find(is_wanted)
    }

    /// The newest file with a row whose name begins with `prefix`.
    pub fn newest(&self, prefix: &str) -> Option<&File> {
        self.benches.iter().find(|file| file.starting_with(prefix).next().is_some())
    }
}

fn of_json(name: String, text: &str) -> anyhow::Result<File> {
    let mut head: Value = serde_json::from_str(text)?;
    let rows = match head.as_object_mut().and_then(|head| head.remove("rows")) {
        Some(Value::Array(rows)) => rows,
        _ => anyhow::bail!("has no rows"),
    };
    Ok(File { name, head, rows })
}

/// Reads a file with one row per line; the line that describes the host is not a measurement.
fn of_lines(name: String, text: &str) -> anyhow::Result<File> {
    let (mut head, mut rows) = (Value::Null, Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let value: Value = serde_json::from_str(line)?;
        match value.get("host") {
            Some(host) => head = host.clone(),
            None => rows.push(value),
        }
    }
    Ok(File { name, head, rows })
}

impl File {
    /// The rows whose name begins with `prefix`, with the rest of the name.
    pub fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.rows.iter().filter_map(move |row| Some((row["bench"].as_str()?.strip_prefix(prefix)?, row)))
    }

    /// True if rows say under which options a program ran.
    fn has_options(&self) -> bool {
        self.rows.iter().any(|row| row["opts"].is_string())
    }

    /// True if the host has instructions that multiply bf16: `benches/compare.sh` writes them as flags.
    fn multiplies_bf16(&self) -> bool {
        self.head["flags"].as_str().is_some_and(|flags| !flags.is_empty())
    }

    /// The row of that name.
    pub fn row(&self, name: &str) -> Option<&Value> {
        self.rows.iter().find(|row| row["bench"] == name)
    }
}

/// Nanoseconds of one operation.
pub fn per_operation(row: &Value) -> Option<f64> {
    let said = row["ns_per_operation"].as_f64();
    said.or_else(|| Some(row["ns"].as_f64()? / row["elements"].as_f64()?))
}
