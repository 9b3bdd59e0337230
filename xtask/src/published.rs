//! `docs/accuracy.md`: figures that were measured on cards, beside what the program says of them.
//!
//! `xtask/published/rows.tsv` has the measured figures, `answers.tsv` what the program said, `left-out.tsv` what vramlab does not support. How to ask is in a row's last
//! column: `predict …` are the program's own words; `mlp SIZES …` and `config FILE …` put a model file before them, `export FILE …` a file of a folder that
//! is not part of the project; `said BYTES BASIS` is what a rehearsal said (`scripts/card/rehearsed.py` for own scripts), with its verdict where it matters.

mod document;
mod fit;
mod halves;
mod judged;
mod tables;
mod workspaces;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use lab_base::bands::BANDS;
use serde_json::Value;

pub use document::{CAUSES, LeftOut, NOTHING, document, left_out};
pub use fit::{FITTED, fitted};
pub use halves::{Tried, tried_halves};
pub use judged::own_context;
use judged::{judged, said_to_fit};
use tables::{FOLDER, named};
pub use tables::{Row, Said, answers, rows};
pub use workspaces::{Workspace, within, workspaces};

/// The document that is made.
pub const DOCUMENT: &str = "docs/accuracy.md";

/// Asks the program about every row that can be asked here, keeps the other answers, fits the bands, and writes answers, bands and document.
///
/// # Errors
/// Files that cannot be read or written; a program that does not start.
pub fn run(root: &Path, program: &Path, exports: Option<&Path>, python: Option<&Path>) -> anyhow::Result<()> {
    let rows = rows(root)?;
    let mut known = answers(root)?;
    let folder = root.join("target/published");
    std::fs::create_dir_all(&folder)?;
    let asking = Asking { root, program, exports, python, folder };
    for row in &rows {
        match asking.ask(row) {
            Ok(Some(said)) => drop(known.insert(row.id.clone(), said)),
            Ok(None) => {}
            Err(error) => eprintln!("{}: {error:#}", row.id),
        }
    }
    let of_rows = rows.iter().filter_map(|row| Some((row, known.get(&row.id)?)));
    let text: String = of_rows.map(|(row, said)| line(&row.id, said)).collect();
    std::fs::write(root.join(FOLDER).join("answers.tsv"), text)?;
    write(root)?;
    let judged = judged(&rows, &known, &BANDS);
    match said_to_fit(&judged)[..] {
        [] => Ok(()),
        ref names => bail!("these ran out of memory on a card, and are said to fit: {}", names.join(", ")),
    }
}

/// One of so many perceptrons is in a sample; there are hundreds.
const SAMPLED: usize = 20;

/// Asks the program about a sample of the rows, of those that need no file from elsewhere and no PyTorch, and compares the answers with those that are kept. Returns how
/// many it asked about.
///
/// # Errors
/// An answer that is another than the kept one; files that cannot be read or written; a program that does not start.
pub fn sample(root: &Path, program: &Path) -> anyhow::Result<usize> {
    let (rows, known) = (rows(root)?, answers(root)?);
    let folder = root.join("target/published");
    std::fs::create_dir_all(&folder)?;
    let asking = Asking { root, program, exports: None, python: None, folder };
    let perceptrons = rows.iter().filter(|row| row.how.starts_with("mlp ")).step_by(SAMPLED);
    let others = rows.iter().filter(|row| row.how.starts_with("config ") || row.how.starts_with("predict "));
    let (mut asked, mut differing) = (0, Vec::new());
    for row in perceptrons.chain(others) {
        let Some(said) = asking.ask(row).with_context(|| row.id.clone())? else { continue };
        asked += 1;
        if known.get(&row.id) != Some(&said) {
            differing.push(format!(
                "{}now: {}",
                known.get(&row.id).map_or("\n".into(), |kept| line(&row.id, kept)),
                line("", &said)
            ));
        }
    }
    match &differing[..] {
        [] => Ok(asked),
        _ => bail!(
            "{} of {asked} answers differ from {FOLDER}/answers.tsv: `cargo xtask published`\n{}",
            differing.len(),
            differing.concat()
        ),
    }
}

/// Fits the bands with the answers that there are, and writes them and the document.
///
/// # Errors
/// Files that cannot be read or written.
pub fn write(root: &Path) -> anyhow::Result<()> {
    let bands = fitted(root)?;
    if std::fs::read_to_string(root.join(FITTED)).is_ok_and(|there| there != bands) {
        std::fs::write(root.join(FITTED), bands)?;
        eprintln!("the bands have changed: build the program");
    }
    Ok(std::fs::write(root.join(DOCUMENT), document(root)?)?)
}

fn line(id: &str, said: &Said) -> String {
    let figures: Vec<String> = said.reserved.iter().chain(&said.beside).map(u64::to_string).collect();
    format!("{id}\t{}\t{}\t{}\n", judged::kind(said.basis), figures.join("\t"), said.fits)
}

struct Asking<'a> {
    root: &'a Path,
    program: &'a Path,
    exports: Option<&'a Path>,
    python: Option<&'a Path>,
    folder: PathBuf,
}

impl Asking<'_> {
    /// The program's answer; `None` if it cannot be asked here.
    fn ask(&self, row: &Row) -> anyhow::Result<Option<Said>> {
        let words: Vec<&str> = row.how.split(' ').collect();
        let (file, words) = match &words[..] {
            ["said", bytes, basis, fits @ ..] => {
                let (reserved, fits) = ([bytes.parse()?; 3], fits.first().unwrap_or(&"null").to_string());
                return Ok(Some(Said { basis: named(basis)?, reserved, beside: [0; 3], fits }));
            }
            ["mlp", sizes, rest @ ..] => {
                let file = self.folder.join("mlp.toml");
                std::fs::write(&file, perceptron(sizes)?)?;
                (Some(file), rest.to_vec())
            }
            ["config", name, rest @ ..] => (Some(self.root.join(FOLDER).join(name)), rest.to_vec()),
            ["export", name, rest @ ..] => match self.exports {
                Some(folder) => (Some(folder.join(name)), rest.to_vec()),
                None => return Ok(None),
            },
            words => (None, words.to_vec()),
        };
        let asks = words.windows(2).any(|pair| pair == ["--cudnn", "ask"]);
        if asks && self.python.is_none() {
            return Ok(None);
        }
        let mut command = Command::new(self.program);
        command.args(&words);
        if let Some(file) = &file {
            command.arg("--model-file").arg(file);
        }
        if let Some(python) = self.python.filter(|_| asks) {
            command.arg("--python").arg(python);
        }
        let ran = command.args(["--json", "-"]).output().context("the program does not start")?;
        let found: Value = serde_json::from_slice(&ran.stdout)
            .with_context(|| String::from_utf8_lossy(&ran.stderr).lines().next().unwrap_or_default().to_string())?;
        of_json(&found).map(Some)
    }
}

/// What a prediction's JSON says.
///
/// # Errors
/// Fields that it lacks.
pub fn of_json(found: &Value) -> anyhow::Result<Said> {
    let number = |of: &Value, name: &str| of[name].as_u64().with_context(|| name.to_string());
    let parts = found["parts"].as_array().context("parts")?;
    let basis = named(found["basis"].as_str().context("basis")?)?;
    let (mut reserved, mut beside) = ([0; 3], [0; 3]);
    for (i, name) in ["lower_bytes", "expected_bytes", "upper_bytes"].into_iter().enumerate() {
        reserved[i] = parts.iter().take(2).map(|part| part[name].as_u64().unwrap_or(0)).sum();
        beside[i] = number(found, name)?.saturating_sub(reserved[i]);
    }
    let band = basis.band();
    let reserved = [band.of_lower(reserved[0]), reserved[1], band.of_upper(reserved[2])];
    Ok(Said { basis, reserved, beside, fits: found["fits"].to_string() })
}

/// The model file of a perceptron: its sizes, the input's first.
fn perceptron(sizes: &str) -> anyhow::Result<String> {
    let sizes: Vec<&str> = sizes.split(',').collect();
    let [input, layers @ .., last] = &sizes[..] else { bail!("a perceptron has sizes") };
    let mut text = format!("[input]\nshape = [{input}]\n");
    for (i, out) in layers.iter().enumerate() {
        write!(text, "[[layer]]\nname = \"l{i}\"\ntype = \"linear\"\nout = {out}\n[[layer]]\ntype = \"relu\"\n")?;
    }
    write!(text, "[[layer]]\nname = \"last\"\ntype = \"linear\"\nout = {last}\n")?;
    write!(text, "[loss]\ntype = \"cross-entropy\"\nclasses = {last}\n[optimizer]\nname = \"adam\"\n")?;
    Ok(text)
}
