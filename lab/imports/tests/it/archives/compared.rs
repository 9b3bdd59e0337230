//! Compares the rows of an export in training with recorded ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lab_imports::exported::{self, LossName};
use lab_models::Recompute;
use lab_training::record::{COLUMNS, Row};
use lab_training::{Continuation, Evaluation, OptimizerKind, OptimizerSettings, Precision, RunSettings, Source};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{Device, Profile};
use serde::Deserialize;

/// Recorded runs of the real PyTorch, by batch.
#[derive(Deserialize)]
pub(crate) struct Recording {
    pub loss: String,
    pub columns: Vec<String>,
    pub runs: BTreeMap<usize, Vec<Row>>,
    /// The entry that the package for Python adds to the graph.
    #[serde(default)]
    pub entry: serde_json::Value,
    /// The modules that are computed again in the backward pass.
    #[serde(default)]
    pub pattern: Option<String>,
    /// Examples of each batch of the evaluation after each step, and the number of batches.
    #[serde(default)]
    pub evaluation: Option<(usize, usize)>,
}

/// A file of `golden/exported`.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    std::fs::read(golden_path(name)).unwrap()
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(crate::EXPORTS).join(name)
}

/// The export of a network as the package writes it, or its graph alone. Where it has the graph that PyTorch exports on the CPU, that is taken.
pub(crate) fn as_the_package_writes(name: &str, folder: &Path, entry: Option<&serde_json::Value>) -> PathBuf {
    as_written("eager", name, folder, entry)
}

/// As [`as_the_package_writes`], with graphs of another folder.
pub(crate) fn as_written(of: &str, name: &str, folder: &Path, entry: Option<&serde_json::Value>) -> PathBuf {
    let own = format!("{of}/{name}.pt2.gz");
    let graph = if golden_path(&own).exists() { golden(&own) } else { golden(&format!("{name}.pt2.gz")) };
    let path = super::unpacked(&graph, folder, name);
    let mut entries = super::entries(&std::fs::read(&path).unwrap());
    entries.retain(|(name, _)| !name.contains("/extra/"));
    if let Some(entry) = entry {
        entries.push(("net/extra/vramlab.json".into(), serde_json::to_vec(entry).unwrap()));
    }
    std::fs::write(&path, super::archive(&entries)).unwrap();
    path
}

impl Recording {
    pub(crate) fn read(name: &str) -> Self {
        let recording: Self = serde_json::from_slice(&golden(&format!("{name}.json"))).unwrap();
        assert_eq!(recording.columns, COLUMNS);
        assert!(recording.runs.len() >= 2);
        recording
    }

    /// Peak allocated memory at each batch, in MiB.
    pub(crate) fn peaks(&self) -> Vec<String> {
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / (1u64 << 20) as f64);
        let peak = |rows: &Vec<Row>| mib(rows.iter().map(|row| row.figures()[1]).max().unwrap_or_default());
        self.runs.values().map(peak).collect()
    }
}

/// A figure of a row that differs from PyTorch's.
pub(crate) struct Difference {
    pub batch: usize,
    pub row: String,
    pub column: &'static str,
    pub ours: u64,
    pub theirs: u64,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { batch, row, column, ours, theirs } = self;
        write!(f, "batch {batch}, {row}: {column} {ours}, PyTorch {theirs}")
    }
}

/// A card as the recordings were made on.
pub(crate) fn device() -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    Device::builder(Arc::new(Meta::new(card))).profile(Profile::torch_2_11(90)).build()
}

/// Our rows of an export, without the last one, `end`.
fn rows(
    path: &Path,
    loss: Option<LossName>,
    again: &Recompute,
    batch: usize,
    evaluation: Option<(usize, usize)>,
) -> Vec<Row> {
    let evaluation = evaluation.map(|(batch, batches)| Evaluation { every: 1, batch, batches, keeps_results: false });
    let model = exported::load(path, loss).unwrap().recomputing(again).unwrap();
    let adamw = OptimizerSettings::new(OptimizerKind::AdamW, 1e-3);
    let precision = Precision::throughout(model.dtype());
    let settings = RunSettings { precision, evaluation, ..RunSettings::new(batch, 3, adamw) };
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let result = exported::train_from(&model, &device(), &settings, source, &mut Continuation::default(), progress);
    let mut rows = result.unwrap().rows;
    rows.pop();
    rows
}

/// Returns every row and column in which an export differs from the recording, for all batches.
pub(crate) fn differences(path: &Path, recording: &Recording) -> Vec<Difference> {
    let loss = (recording.loss != "inside").then(|| recording.loss.parse().unwrap());
    let again = recording.pattern.as_ref().map(|pattern| pattern.parse().unwrap()).unwrap_or_default();
    let mut differences = Vec::new();
    for (batch, theirs) in &recording.runs {
        let ours = rows(path, loss, &again, *batch, recording.evaluation);
        let labels = |rows: &[Row]| rows.iter().map(|row| row.label.clone()).collect::<Vec<_>>();
        assert_eq!(labels(&ours), labels(theirs), "{}, batch {batch}", path.display());
        for (ours, theirs) in ours.iter().zip(theirs) {
            for (i, (ours_now, theirs_now)) in ours.figures().into_iter().zip(theirs.figures()).enumerate() {
                if ours_now != theirs_now {
                    let (row, column) = (ours.label.clone(), COLUMNS[i + 1]);
                    differences.push(Difference { batch: *batch, row, column, ours: ours_now, theirs: theirs_now });
                }
            }
        }
    }
    differences
}
