//! Graphs that are kept of networks which the user's Python builds, so that the next question needs no Python: which questions one answers, and when it
//! is as good as a rehearsal.

use std::hash::{Hash as _, Hasher as _};
use std::path::Path;

use lab_base::figures::{date, grouped};
use lab_base::python::Python;
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{hub_cache::in_hub_cache, request};
use crate::run::RunSpec;

/// Version of what the driver exports and of what is kept: another one begins anew.
const FORMAT: u64 = 4;

/// Fields of a run that a graph answers with any value: they change no network.
const FREE: [&str; 14] = [
    "accumulate",
    "alloc-conf",
    "batch",
    "clip-grad-norm",
    "data",
    "env",
    "gpu",
    "lr",
    "optimizer",
    "optimizer-impl",
    "seed",
    "sequence",
    "steps",
    "zero-grad",
];
/// Fields that a graph has one value of.
const FIXED: [&str; 5] = ["attention", "checkpoint", "choices", "head", "precision"];
/// Names of the network.
const NAMES: [&str; 2] = ["model", "model-file"];

/// Largest share by which the allocated and the reserved peak of a graph may differ from those of a rehearsal.
const NEAR: (f64, f64) = (5e-4, 5e-3);

/// Largest configuration that is part of a key. Bytes.
const MOST_BYTES: u64 = 1 << 20;

/// What decides a network's graph, as data: its configuration, the releases of the libraries that build it, and the fields that have one value in it. `None` if
/// a graph cannot answer the run, or if what builds the network is not known.
pub fn key(word: &str, spec: &RunSpec, python: &Python) -> Option<Value> {
    let fields = spec.said();
    let known = |name: &String| [&FREE[..], &FIXED, &NAMES].concat().contains(&name.as_str());
    if !fields.keys().all(known) {
        return None;
    }
    let fixed: Vec<Value> = FIXED.iter().map(|name| fields.get(*name).cloned().unwrap_or_default()).collect();
    let releases = ["torch", "transformers"].map(|package| python.version_of(package));
    Some(json!([FORMAT, env!("CARGO_PKG_VERSION"), configuration(word, spec)?, releases, fixed]))
}

/// The configuration that a word names, as data.
fn configuration(word: &str, spec: &RunSpec) -> Option<Value> {
    if let Some(known) = request::configuration(word, spec) {
        return known.get("model_type").is_some().then_some(known);
    }
    let path = Path::new(word);
    let file = match path.is_dir() {
        true => path.join("config.json"),
        false if path.is_file() => path.to_path_buf(),
        false => in_hub_cache(word)?,
    };
    let is_small = file.metadata().is_ok_and(|file| file.len() <= MOST_BYTES);
    let value: Value = serde_json::from_slice(&std::fs::read(file).ok().filter(|_| is_small)?).ok()?;
    value.get("model_type").is_some().then_some(value)
}

/// What is kept of a network beside its graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What decides the graph.
    pub key: Value,
    /// When the graph was recorded, in seconds since 1970.
    #[serde(default)]
    pub recorded: u64,
    /// Tokens of an example unless a run says.
    #[serde(default)]
    pub tokens: Option<usize>,
    /// The first question, until there is a graph.
    #[serde(default)]
    pub first: Option<Asked>,
    /// Bytes of workspace of each attention that cuDNN computes, if the rehearsals had cuDNN's and the graph is nearer to them with it.
    #[serde(default)]
    pub cudnn: Option<u64>,
    /// True if the workspaces of its convolutions are those that the cuDNN of the user's PyTorch names.
    #[serde(default)]
    pub convolutions: bool,
    /// How the graph compared with rehearsals; empty as long as there is no graph.
    #[serde(default)]
    pub compared: Vec<Compared>,
    /// Why there is no graph, once one was tried.
    #[serde(default)]
    pub failed: Option<String>,
}

impl Entry {
    /// The name of its files.
    pub fn name(key: &Value) -> String {
        let mut hasher = FxHasher::default();
        key.to_string().hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// True if questions are answered from its graph.
    pub fn answers(&self) -> bool {
        !self.compared.is_empty() && self.compared.iter().all(Compared::is_near)
    }

    /// Where an answer comes from, in a sentence.
    pub fn in_words(&self) -> String {
        let at: Vec<String> = self.compared.iter().map(Compared::in_words).collect();
        format!(
            "From the graph that was recorded on {}: its peak is {} (--no-cache rehearses).",
            date(self.recorded),
            at.join(" and ")
        )
    }

    /// The largest difference from a rehearsal, as a share.
    pub fn away(&self) -> f64 {
        self.compared.iter().map(Compared::difference).fold(0.0, f64::max)
    }

    /// The same in words.
    pub fn difference(&self) -> String {
        in_percent(self.away())
    }
}

/// A question that was rehearsed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The fields of the run.
    pub fields: Map<String, Value>,
    /// Allocated and reserved bytes at the peak.
    pub peak: (u64, u64),
    /// True if it fits into the memory of its card.
    pub fits: bool,
}

/// The peaks of a graph and of a rehearsal, of the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Examples.
    pub batch: usize,
    /// Tokens of each.
    pub tokens: Option<usize>,
    /// Allocated bytes and reserved ones, of the graph.
    pub graph: (u64, u64),
    /// The same of the rehearsal.
    pub rehearsal: (u64, u64),
}

impl Compared {
    /// True if the graph may answer in place of a rehearsal.
    pub fn is_near(&self) -> bool {
        let near = |graph: u64, truth: u64, most: f64| graph.abs_diff(truth) as f64 <= most * truth as f64;
        near(self.graph.0, self.rehearsal.0, NEAR.0) && near(self.graph.1, self.rehearsal.1, NEAR.1)
    }

    /// How near, to what.
    fn in_words(&self) -> String {
        let like = match self.graph == self.rehearsal {
            true => "that".into(),
            false => format!("within {} of that", in_percent(self.difference())),
        };
        format!("{like} of a rehearsal at {}", self.sizes())
    }

    /// The larger of the two differences, as a share.
    pub fn difference(&self) -> f64 {
        let part = |graph: u64, truth: u64| graph.abs_diff(truth) as f64 / truth.max(1) as f64;
        part(self.graph.0, self.rehearsal.0).max(part(self.graph.1, self.rehearsal.1))
    }

    fn sizes(&self) -> String {
        let tokens = self.tokens.map(|tokens| format!(" × {} tokens", grouped(tokens as u64, ' '))).unwrap_or_default();
        format!("batch {}{tokens}", self.batch)
    }
}

/// A share in hundredths of a percent, never less than it is.
fn in_percent(share: f64) -> String {
    format!("{:.2} %", (share * 1e4).ceil() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_answers_only_where_it_is_near() {
        let compared = |graph| Compared { batch: 2, tokens: Some(512), graph, rehearsal: (1_000_000, 2_000_000) };
        let entry = |graph| Entry { compared: vec![compared(graph)], ..Entry::default() };
        let equal = entry((1_000_000, 2_000_000));
        let words = equal.in_words();
        assert!(equal.answers() && words.contains("is that of a rehearsal at batch 2 × 512 tokens (--no"), "{words}");
        let near = entry((1_000_100, 2_000_000));
        assert!(near.answers() && near.in_words().contains("within 0.01 % of that"), "{}", near.in_words());
        let one_of_two =
            Entry { compared: vec![compared((1, 1)), compared((1_000_000, 2_000_000))], ..Entry::default() };
        assert!(!one_of_two.answers());
        assert!(!entry((1_001_000, 2_000_000)).answers() && !entry((1_000_000, 2_020_000)).answers());
        assert!(!Entry::default().answers());
    }
}
