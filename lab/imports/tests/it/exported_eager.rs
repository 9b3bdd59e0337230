//! Compares exports of the package for Python with the *eager* programs, as scripts train them on the real PyTorch (`golden/exported/eager`, made by
//! `scripts/export/eager.py`), with the lifetimes that the package writes into the file and without them.

use std::path::{Path, PathBuf};

use lab_models::Architecture;

use crate::archives::compared::{Difference, Recording, as_the_package_writes, differences};

/// Networks with figures that differ from the eager program's although the file has lifetimes, and the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("timm-eva02", "another free block is taken in one step, as of the exported program; only `inactive_split`"),
    (
        "wav2vec2",
        "the feature encoder sets `hidden_states.requires_grad = True` on a view of the input, which `torch.export` leaves out: that view's \
         gradient and the input behind it live on until the graph is dropped, in the next step",
    ),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/exported/eager")
}

/// All networks that were recorded.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        entries.filter_map(|name| name.strip_suffix(".json").map(ToString::to_string)).collect();
    names.sort();
    names
}

/// Cell of the table: `equal`, or the deviation of the peak and the number of figures that differ.
fn cell(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "equal".into();
    }
    let peaks = differences.iter().filter(|found| found.column == "max_allocated" && found.row == "s2.step");
    let percent = |found: &Difference| 100.0 * (found.ours as f64 / found.theirs as f64 - 1.0);
    let most = peaks.map(percent).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let peak = most.map_or("peak equal".into(), |most| format!("peak {most:+.2} %"));
    format!("{peak}; {} figures differ", differences.len())
}

/// Returns a row of the table, and the differences with lifetimes.
fn row(name: &str) -> (String, Vec<Difference>) {
    let recording = Recording::read(&format!("eager/{name}"));
    let folder = tempfile::tempdir().unwrap();
    let with = differences(&as_the_package_writes(name, folder.path(), Some(&recording.entry)), &recording);
    let without = differences(&as_the_package_writes(name, folder.path(), None), &recording);
    let row = format!("| {name} | {} | {} | {} |\n", recording.peaks().join(" | "), cell(&with), cell(&without));
    (row, with)
}

#[test]
fn every_figure_is_the_eager_programs_or_the_network_is_named() {
    let names = names();
    assert!(names.len() >= 47, "{}", names.len());
    let mut table = String::from(
        "| network | eager peak at batch 4, MiB | at batch 7 | with lifetimes | the graph alone |\n|---|---|---|---|---|\n",
    );
    let mut wrong = Vec::new();
    for name in &names {
        let (row, found) = row(name);
        table += &row;
        let is_named = DIFFERENT.iter().any(|(known, _)| known == name);
        if is_named == found.is_empty() {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            wrong.push(format!("{name}:\n{}", found.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let causes: String = DIFFERENT.iter().map(|(name, cause)| format!("- {name}: {cause}\n")).collect();
    let table = format!("<!-- eager -->\n{table}\n{causes}<!-- /eager -->");
    let path = format!("{}/../../docs/evidence-import.md", env!("CARGO_MANIFEST_DIR"));
    assert!(std::fs::read_to_string(path).unwrap().contains(&table), "docs/evidence-import.md should have:\n{table}");
}

#[test]
fn the_batch_of_a_recorded_call_is_fixed_and_the_answer_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = as_the_package_writes("mlp", folder.path(), Some(&serde_json::json!({"version": 1, "recorded": true})));
    let model = lab_imports::exported::load(&path, None).unwrap();
    model.check(2, memcore::DType::F32).unwrap();
    let error = model.check(4, memcore::DType::F32).unwrap_err().to_string();
    assert!(error.starts_with("batch: the file is one call, recorded with a batch of 2, because"), "{error}");
    assert!(model.notes()[1].starts_with("The file is one recorded call: the batch is 2,"), "{:?}", model.notes());
}
