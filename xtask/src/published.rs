//! `docs/accuracy.md`: figures that were measured on cards, beside what the program says of them.
//!
//! `xtask/published/rows.tsv` has the measured figures, `answers.tsv` what the program said, `left-out.tsv` what vramlab does not support. How to ask is in a row's last
//! column: `predict …` are the program's own words; `mlp SIZES …` and `config FILE …` put a model file before them, `export FILE …` a file of a folder that
//! is not part of the project; `said BYTES BASIS` is what a rehearsal said, as the named file has it.

mod halves;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use halves::Difference;
use lab_base::bands::{BANDS, Basis, Range};
use serde_json::Value;

/// Folder of the tables.
const FOLDER: &str = "xtask/published";

/// The document that is made.
pub const DOCUMENT: &str = "docs/accuracy.md";

/// A measured figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub id: String,
    source: String,
    place: String,
    card: String,
    release: String,
    technique: String,
    published: f64,
    ran_out: bool,
    /// What the source's process takes besides reserved memory, in MiB; `None`: what the program says of the card.
    beside: Option<[u64; 3]>,
    how: String,
}

/// What the program said. Bytes: with the card's context, and of reserved memory alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    basis: String,
    process: [u64; 3],
    reserved: [u64; 3],
    fits: String,
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
    let process = [a.parse()?, b.parse()?, c.parse()?];
    let reserved = [d.parse()?, e.parse()?, f.parse()?];
    Ok((id.into(), Said { basis: basis.into(), process, reserved, fits: fits.into() }))
}

/// Asks the program about every row that can be asked here, keeps the other answers, and writes answers and document.
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
    std::fs::write(root.join(DOCUMENT), document(root)?)?;
    let judged = judged(&rows, &known);
    match said_to_fit(&judged)[..] {
        [] => Ok(()),
        ref names => bail!("these ran out of memory on a card, and are said to fit: {}", names.join(", ")),
    }
}

fn line(id: &str, said: &Said) -> String {
    let figures: Vec<String> = said.process.iter().chain(&said.reserved).map(u64::to_string).collect();
    format!("{id}\t{}\t{}\t{}\n", said.basis, figures.join("\t"), said.fits)
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
            ["said", bytes, basis] => return said(bytes.parse()?, basis).map(Some),
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
    let names = ["lower_bytes", "expected_bytes", "upper_bytes"];
    let number = |of: &Value, name: &str| of[name].as_u64().with_context(|| name.to_string());
    let parts = found["parts"].as_array().context("parts")?;
    let (mut process, mut reserved) = ([0; 3], [0; 3]);
    for (i, name) in names.into_iter().enumerate() {
        process[i] = number(found, name)?;
        reserved[i] = parts.iter().take(2).map(|part| part[name].as_u64().unwrap_or(0)).sum();
    }
    let basis = found["basis"].as_str().context("basis")?.to_string();
    Ok(Said { basis, process, reserved, fits: found["fits"].to_string() })
}

/// What was said of reserved memory, by the table of bands.
fn said(reserved: u64, basis: &str) -> anyhow::Result<Said> {
    let of: Basis = serde_json::from_value(Value::String(basis.into()))?;
    let Range { lower, expected, upper } = of.range(reserved, reserved);
    let figures = [lower, expected, upper];
    Ok(Said { basis: basis.into(), process: figures, reserved: figures, fits: "null".into() })
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

/// The place of a row that ran out of memory, against a Yes.
const SAID_TO_FIT: &str = "said to fit";

/// A row with its interval, in MiB.
struct Judged<'a> {
    row: &'a Row,
    said: &'a Said,
    figures: [f64; 3],
}

impl Judged<'_> {
    fn place(&self) -> &'static str {
        let [lower, _, upper] = self.figures;
        // Figures are rounded to MiB.
        match self.row.published {
            // What the card had when memory ran out does not count.
            _ if self.row.ran_out && self.said.fits == "true" => SAID_TO_FIT,
            _ if self.row.ran_out => "inside",
            measured if measured > upper + 1.0 => "above",
            measured if measured < lower - 1.0 => "below",
            _ => "inside",
        }
    }

    fn error(&self) -> f64 {
        100.0 * (self.figures[1] / self.row.published - 1.0)
    }

    fn difference(&self) -> Difference<'_> {
        let reserved = self.said.reserved[1] as f64 / f64::from(1 << 20);
        let percent = 100.0 * (self.row.published - self.figures[1]) / reserved;
        Difference { source: &self.row.source, kind: &self.said.basis, percent }
    }

    fn width(&self) -> f64 {
        100.0 * (self.figures[2] - self.figures[0]) / self.row.published
    }
}

fn judged<'a>(rows: &'a [Row], answers: &'a BTreeMap<String, Said>) -> Vec<Judged<'a>> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let figures = |row: &Row, said: &Said| match row.beside {
        Some(beside) => std::array::from_fn(|i| mib(said.reserved[i]) + beside[i] as f64),
        None => said.process.map(mib),
    };
    let of = |row: &'a Row| {
        let said = answers.get(&row.id)?;
        Some(Judged { row, said, figures: figures(row, said) })
    };
    rows.iter().filter_map(of).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Sums by one property of the rows.
fn sums(out: &mut String, title: &str, judged: &[Judged<'_>], of: fn(&Row) -> &str) -> std::fmt::Result {
    let mut groups: BTreeMap<&str, Vec<&Judged<'_>>> = BTreeMap::new();
    for one in judged {
        groups.entry(of(one.row)).or_default().push(one);
    }
    write!(
        out,
        "\n| {title} | rows | inside | above | below | median error | median width |\n|---|---|---|---|---|---|---|\n"
    )?;
    for (name, group) in groups {
        let count = |place: &str| group.iter().filter(|one| one.place() == place).count();
        let share = |n: usize| format!("{:.1} %", 100.0 * n as f64 / group.len() as f64);
        let trained = || group.iter().filter(|one| !one.row.ran_out);
        writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {:+.2} % | {:.1} % |",
            group.len(),
            share(count("inside")),
            share(count("above")),
            share(count("below")),
            median(trained().map(|one| one.error()).collect()),
            median(trained().map(|one| one.width()).collect())
        )?;
    }
    Ok(())
}

/// Words for why a row is left out.
pub const CAUSES: [[&str; 2]; 9] = [
    ["compiled", "a compiler decides, and its kernels were not recorded"],
    ["data", "the lengths of the examples decide, and the data is not there"],
    ["format", "weights in a format of the script's own, or float8"],
    ["kernels", "the script's own kernels decide"],
    ["leftovers", "the process held tensors of benchmarks before it, whose sizes are not published"],
    ["network", "the framework's own networks and trainer, which were not rehearsed"],
    ["ranks", "sharded over several cards"],
    ["release", "rules of this release are not known"],
    ["script", "the measured script is needed, and was not rehearsed"],
];

/// A published row that is left out.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// Its name.
    pub id: String,
    source: String,
    address: String,
    /// One of [`CAUSES`].
    pub cause: String,
}

/// Reads the rows that are left out.
///
/// # Errors
/// A file that cannot be read, or a row that lacks a column.
pub fn left_out(root: &Path) -> anyhow::Result<Vec<LeftOut>> {
    let text = std::fs::read_to_string(root.join(FOLDER).join("left-out-rows.tsv"))?;
    let of = |line: &str| {
        let columns: Vec<String> = line.split('\t').map(String::from).collect();
        let [id, source, address, cause] = <[String; 4]>::try_from(columns).ok().context("four columns")?;
        Ok(LeftOut { id, source, address, cause })
    };
    text.lines().skip(1).map(of).collect()
}

/// Each published row that no answer is compared with, counted by source and cause.
fn write_left_out(out: &mut String, root: &Path) -> anyhow::Result<()> {
    writeln!(out, "\n## Left out\n\nEach row: `xtask/published/left-out-rows.tsv`.\n\n| cause | |\n|---|---|")?;
    for [cause, words] in CAUSES {
        writeln!(out, "| {cause} | {words} |")?;
    }
    writeln!(out, "\n| source | rows | address | cause |\n|---|---|---|---|")?;
    let mut counted: BTreeMap<[String; 3], usize> = BTreeMap::new();
    for LeftOut { source, address, cause, .. } in left_out(root)? {
        *counted.entry([source, address, cause]).or_default() += 1;
    }
    for ([source, address, cause], rows) in counted {
        writeln!(out, "| {source} | {rows} | {address} | {cause} |")?;
    }
    let others = std::fs::read_to_string(root.join(FOLDER).join("left-out.tsv"))?;
    for line in others.lines().skip(1) {
        writeln!(out, "| {} |", line.replace('\t', " | "))?;
    }
    Ok(())
}

/// Trainings that ran out of memory where they were measured, and what is said of them.
fn write_ran_out(out: &mut String, judged: &[Judged<'_>]) -> std::fmt::Result {
    writeln!(
        out,
        "\n## Ran out of memory\n\nMiB. No answer may be Yes.\n\n| row | card | lower | expected | verdict |\n|---|---|---|---|---|"
    )?;
    for one in judged.iter().filter(|one| one.row.ran_out) {
        let fits = match one.said.fits.as_str() {
            "true" => "Yes",
            "false" => "No",
            _ => "Perhaps",
        };
        let ([lower, expected, _], Row { id, card, .. }) = (one.figures, one.row);
        writeln!(out, "| {id} | {card} | {lower:.0} | {expected:.0} | {fits} |")?;
    }
    Ok(())
}

/// Rows that ran out of memory where they were measured, and are said to fit.
fn said_to_fit<'a>(judged: &'a [Judged<'_>]) -> Vec<&'a str> {
    judged.iter().filter(|one| one.place() == SAID_TO_FIT).map(|one| one.row.id.as_str()).collect()
}

/// The document.
///
/// # Errors
/// Tables that cannot be read.
pub fn document(root: &Path) -> anyhow::Result<String> {
    let (rows, answers) = (rows(root)?, answers(root)?);
    let judged = judged(&rows, &answers);
    let mut out = String::from("<!-- published -->\n");
    out += HEAD;
    writeln!(out, "\n| what decides | below | above | chosen with |\n|---|---|---|---|")?;
    for band in BANDS {
        let [below, above] = [band.below, band.above].map(|n| format!("{:.1} %", n as f64 / 10.0));
        writeln!(out, "| {} | {below} | {above} | {} |", band.basis.in_words(), band.source)?;
    }
    let sources: std::collections::BTreeSet<&str> = judged.iter().map(|one| one.row.source.as_str()).collect();
    let share = |place: &str| {
        let of = |source: &&str| {
            let own: Vec<_> = judged.iter().filter(|one| one.row.source == **source).collect();
            own.iter().filter(|one| one.place() == place).count() as f64 / own.len() as f64
        };
        100.0 * sources.iter().map(of).sum::<f64>() / sources.len().max(1) as f64
    };
    writeln!(
        out,
        "\n## Sums\n\n{} rows of {} sources. With the same weight for each source {:.1} % are inside, {:.1} % above and {:.1} % below.",
        judged.len(),
        sources.len(),
        share("inside"),
        share("above"),
        share("below")
    )?;
    sums(&mut out, "source", &judged, |row| &row.source)?;
    sums(&mut out, "card", &judged, |row| &row.card)?;
    sums(&mut out, "technique", &judged, |row| &row.technique)?;
    sums(&mut out, "release", &judged, |row| &row.release)?;
    let trained = judged.iter().filter(|one| !one.row.ran_out);
    halves::write(&mut out, &trained.map(Judged::difference).collect::<Vec<_>>())?;
    write_ran_out(&mut out, &judged)?;
    writeln!(
        out,
        "\n## Outside their interval\n\n| row | published | lower | expected | upper | |\n|---|---|---|---|---|---|"
    )?;
    for one in judged.iter().filter(|one| one.place() != "inside") {
        let [lower, expected, upper] = one.figures;
        let Row { id, published, .. } = one.row;
        writeln!(out, "| {id} | {published:.0} | {lower:.0} | {expected:.0} | {upper:.0} | {} |", one.place())?;
    }
    write_left_out(&mut out, root)?;
    writeln!(
        out,
        "\n## Every row\n\nMiB.\n\n| row | where | published | lower | expected | upper | |\n|---|---|---|---|---|---|---|"
    )?;
    for one in &judged {
        let [lower, expected, upper] = one.figures;
        let Row { id, place, published, ran_out, .. } = one.row;
        let published = if *ran_out { "ran out of memory".into() } else { format!("{published:.0}") };
        writeln!(out, "| {id} | {place} | {published} | {lower:.0} | {expected:.0} | {upper:.0} | {} |", one.place())?;
    }
    out += "<!-- /published -->\n";
    Ok(out)
}

const HEAD: &str = "# How far cards were from what was said\n\n\
    Made by `cargo xtask published` from measured figures (`xtask/published/`). A test compares.\n\n\
    An answer has three figures: tensors, what PyTorch reserves for them, and what a process takes besides. The upper one fits for a Yes, the lower one does \
    not for a No. This table decides how far both are from what is expected, in parts of reserved memory. Nothing is fitted for a row. \
    The bands were chosen with the rows of GPUMemNet, xMem and an H200 in sight (GPUMemNet's context, 1429 MiB, is from its own perceptrons). The recorded programs \
    on an H100 were not looked at before. What a recorded rehearsal said stands in for a new one where the row says so (`said`). \
    The rows of Liger-Kernel and FakeGPU are PyTorch's allocated memory, and chose no band. They were rehearsed with PyTorch 2.11: FakeGPU's with transformers \
    5.12.1, as measured (5.24 takes up to 7.5 % less), and the rotary embeddings by the rule of transformers 4.44, which 5.24 changed.\n";
