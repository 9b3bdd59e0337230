//! The document of the rows, their intervals and sums.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use lab_base::bands::Band;

use super::fit::{Fit, fits, needed};
use super::halves;
use super::judged::{Judged, judged};
use super::tables::{FOLDER, Row, answers, rows};
use super::workspaces;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Rows of programs that nothing compiled or timed, on one card.
const EAGER: &str = "In eager trainings on one card";

fn eager<'a, 'b>(judged: &'b [Judged<'a>]) -> Vec<&'b Judged<'a>> {
    judged.iter().filter(|one| !one.row.ran_out && !one.row.technique.starts_with("compiled")).collect()
}

/// The width that half of the weight is narrower than. Each source weighs the same.
fn weighted_median_width(rows: &[&Judged<'_>]) -> f64 {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for one in rows {
        *sizes.entry(&one.row.source).or_default() += 1;
    }
    let mut widths: Vec<(f64, f64)> =
        rows.iter().map(|one| (one.width(), 1.0 / sizes[one.row.source.as_str()] as f64)).collect();
    widths.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = sizes.len() as f64 / 2.0;
    for (width, weight) in widths {
        left -= weight;
        if left <= 0.0 {
            return width;
        }
    }
    0.0
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

/// Stands where nobody wrote what is known of a row outside of its interval.
pub const NOTHING: &str = "nobody looked";

/// What is known of the rows outside of their intervals.
fn known_of_outside(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(root.join(FOLDER).join("outside.tsv"))?;
    let of = |line: &str| line.split_once('\t').map(|(id, why)| (id.to_string(), why.to_string()));
    Ok(text.lines().skip(1).filter_map(of).collect())
}

/// Rows that are outside of their intervals.
fn write_outside(out: &mut String, judged: &[Judged<'_>], known: &BTreeMap<String, String>) -> std::fmt::Result {
    writeln!(
        out,
        "\n## Outside their interval\n\n| row | published | lower | expected | upper | | what is known |\n|---|---|---|---|---|---|---|"
    )?;
    for one in judged.iter().filter(|one| one.place() != "inside") {
        let [lower, expected, upper] = one.figures;
        let Row { id, published, .. } = one.row;
        let why = known.get(id.as_str()).map_or(NOTHING, String::as_str);
        writeln!(out, "| {id} | {published:.0} | {lower:.0} | {expected:.0} | {upper:.0} | {} | {why} |", one.place())?;
    }
    Ok(())
}

/// Percent from what was expected beyond which a row inside of its interval is listed.
const FAR: f64 = 5.0;

/// Rows that are inside of their intervals, and far from what was expected.
fn write_far(out: &mut String, judged: &[Judged<'_>], known: &BTreeMap<String, String>) -> std::fmt::Result {
    writeln!(
        out,
        "\n## Inside, and more than {FAR} % from what was expected\n\n| row | published | expected | | what is known |\n|---|---|---|---|---|"
    )?;
    let far = |one: &&Judged<'_>| one.place() == "inside" && !one.row.ran_out && one.error().abs() > FAR;
    for one in judged.iter().filter(far) {
        let ([_, expected, _], Row { id, published, .. }) = (one.figures, one.row);
        let why = known.get(id.as_str()).map_or(one.said.basis.in_words(), String::as_str);
        writeln!(out, "| {id} | {published:.0} | {expected:.0} | {:+.1} % | {why} |", one.error())?;
    }
    Ok(())
}

/// The document.
///
/// # Errors
/// Tables that cannot be read.
pub fn document(root: &Path) -> anyhow::Result<String> {
    let (rows, answers, fits) = (rows(root)?, answers(root)?, fits(root)?);
    let bands: Vec<Band> = fits.iter().map(Fit::band).collect();
    let judged = judged(&rows, &answers, &bands);
    let mut out = String::from("<!-- published -->\n");
    out += HEAD;
    writeln!(out, "\n| what decides | below | above | fitted with the rows of |\n|---|---|---|---|")?;
    for Fit { basis, below, above, from } in &fits {
        let [below, above] = [below, above].map(|n| format!("{:.1} %", *n as f64 / 10.0));
        writeln!(out, "| {} | {below} | {above} | {from} |", basis.in_words())?;
    }
    let sources: BTreeSet<&str> = judged.iter().map(|one| one.row.source.as_str()).collect();
    let share = |place: &str| {
        let of = |source: &&str| {
            let own: Vec<_> = judged.iter().filter(|one| one.row.source == **source).collect();
            own.iter().filter(|one| one.place() == place).count() as f64 / own.len() as f64
        };
        100.0 * sources.iter().map(of).sum::<f64>() / sources.len().max(1) as f64
    };
    writeln!(
        out,
        "\n## Sums\n\n{} rows of {} sources. With the same weight for each source {:.1} % are inside, {:.1} % above and {:.1} % below. {EAGER} of {} rows the median width is {:.1} %.",
        judged.len(),
        sources.len(),
        share("inside"),
        share("above"),
        share("below"),
        eager(&judged).len(),
        weighted_median_width(&eager(&judged))
    )?;
    sums(&mut out, "source", &judged, |row| &row.source)?;
    sums(&mut out, "card", &judged, |row| &row.card)?;
    sums(&mut out, "technique", &judged, |row| &row.technique)?;
    sums(&mut out, "release", &judged, |row| &row.release)?;
    halves::write(&mut out, &needed(&judged))?;
    write_ran_out(&mut out, &judged)?;
    let known = known_of_outside(root)?;
    write_outside(&mut out, &judged, &known)?;
    write_far(&mut out, &judged, &known)?;
    workspaces::write(&mut out, root)?;
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
    not for a No. This table decides how far both are from what is expected, in parts of reserved memory. The command fits it with the rows below, by one rule. \
    Nothing is fitted for a row, and no row is looked up.\n\n\
    GPUMemNet's context, 1403 to 1465 MiB, is from every second of its own perceptrons: the middle 98 %. What a recorded rehearsal said stands in for a new one where the row says so (`said`). \
    The rows of Liger-Kernel and FakeGPU are PyTorch's allocated memory. They were rehearsed with PyTorch 2.11: FakeGPU's with transformers \
    5.12.1, as measured (5.24 takes up to 7.5 % less), and the rotary embeddings by the rule of transformers 4.44, which 5.24 changed.\n";
