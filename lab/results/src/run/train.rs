//! Result of a run, as it is written.

use lab_analysis::forensics::Leak;
use lab_base::figures::{both, counted, number, short};
use lab_base::section::{Cell, Figure, Tries};
use lab_training::record::{COLUMNS, Row};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::chosen::ChosenNetwork;
use super::super::device::DeviceInfo;
use super::super::findings::{Settings, plain};
use super::super::premise::Premise;
use super::super::rehearsal::RehearsalResult;
use super::figures::{AccuracyResult, ByCategory, OutOfMemoryResult, OverheadsResult, PeakResult, RingBytes};
use super::prediction::Prediction;
use super::split::{DataParallelFigures, RankResult, StageResult};

/// Result of a run. What a device without values cannot measure is null, with the reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainResult {
    /// Settings in force.
    pub settings: Settings,
    /// Description of the network, one line.
    pub description: Option<String>,
    /// Premises of the answer, with their sources.
    pub premises: Vec<Premise>,
    /// The device; null for a run over several.
    pub device: Option<DeviceInfo>,
    /// The columns of `steps`.
    pub step_columns: Vec<String>,
    /// A row per phase.
    pub steps: Vec<Row>,
    /// Number of rows of a long run that are not kept.
    #[serde(skip)]
    pub rows_left_out: usize,
    /// The peak; for a run that ran out of memory, the highest moment until then.
    pub peak: Option<PeakResult>,
    /// Bytes allocated after the last step, or when memory ran out, by category.
    pub by_category: Option<ByCategory>,
    /// The five figures at the same time.
    pub rings: Option<RingBytes>,
    /// What the driver's figure holds besides segments; null if nothing was measured.
    pub overheads: Option<OverheadsResult>,
    /// Loss of each step; null if it is not a number.
    pub losses: Option<Vec<Option<f64>>>,
    /// Median of the times of the steps, in milliseconds.
    pub ms_per_step_median: Option<f64>,
    /// Time of each step, in milliseconds.
    pub ms_per_step: Option<Vec<f64>>,
    /// Accuracy on the test examples.
    pub accuracy: Option<AccuracyResult>,
    /// Number of trained values.
    pub parameters: Option<u64>,
    /// True if it was stopped before the last step.
    pub interrupted: bool,
    /// Why some fields are missing.
    pub reason: Option<String>,
    /// Why memory ran out, if it did.
    pub out_of_memory: Option<OutOfMemoryResult>,
    /// Memory that grew from step to step, and who holds it.
    pub leak: Option<Leak>,
    /// Reasons why figures, or results, may not be what was asked for.
    pub warnings: Vec<String>,
    /// `torch.cuda.memory_stats()` after the last step, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_stats: Option<Map<String, Value>>,
    /// For a dry run: whether it fits, and what would change that.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// Changes to try, for a run that does not fit, or hardly does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<Tries>,
    /// A network that the user's Python built, and what was chosen to train it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChosenNetwork>,
    /// The rehearsal that such an answer rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<Box<RehearsalResult>>,
    /// Devices of a network that is split, in the network's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<StageResult>,
    /// How a step is divided among ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_parallel: Option<DataParallelFigures>,
    /// The ranks that were run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankResult>,
}

impl TrainResult {
    /// Makes a result that has only the request.
    pub fn from_settings(settings: Settings) -> Self {
        Self { settings, step_columns: COLUMNS.map(String::from).to_vec(), ..Self::default() }
    }

    /// Converts losses for the JSON.
    pub fn losses(losses: &[f64]) -> Option<Vec<Option<f64>>> {
        Some(losses.iter().map(|loss| loss.is_finite().then_some(*loss)).collect())
    }

    /// Returns the setting of this name, in words; empty if there is none.
    pub(super) fn setting(&self, name: &str) -> String {
        self.settings.get(name).filter(|value| !value.is_null()).map(plain).unwrap_or_default()
    }

    /// The size of its batches, or the sizes that they have in turn.
    pub(super) fn batch(&self) -> String {
        let sizes = self.setting("batches").replace(',', ", ");
        if sizes.is_empty() { self.setting("batch") } else { sizes }
    }

    /// True if memory was limited: without a limit there is nothing to fit into.
    pub fn limited(&self) -> bool {
        ["gpu", "memory-limit", "memory-fraction"].iter().any(|name| !self.setting(name).is_empty())
    }

    /// The network's name.
    pub fn model(&self) -> String {
        [self.setting("model"), self.setting("model-file"), "run".into()]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default()
    }

    /// Says where the peak was reached, and which category was largest.
    pub(super) fn peak_in_words(&self, peak: &PeakResult) -> String {
        let what = if self.out_of_memory.is_some() { "When memory ran out" } else { "The peak is" };
        let mut text = format!("{what} {}", both(peak.bytes));
        if self.out_of_memory.is_some() {
            text += " were allocated";
        }
        let parts = [(", in ", &peak.phase), (", when ", &peak.op), (" in ", &peak.scope)];
        for (before, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            text += &format!("{before}{part}");
            text += if before == ", when " { " runs" } else { "" };
        }
        if let Some((name, bytes)) = peak.mostly() {
            text += &format!("; {} of it is {}", short(bytes), name.replace('_', " "));
        }
        text + &format!(". PyTorch reserves {} at most.", both(peak.reserved_bytes))
    }

    /// Describes network, training, device and allocator in a paragraph.
    pub(super) fn header(&self) -> String {
        let setting = |name| self.setting(name);
        let mut run = format!(
            "batch {}, {} ({}) lr {}, {}, {} data, {}, seed {}",
            self.batch(),
            setting("optimizer"),
            setting("optimizer-impl"),
            setting("lr"),
            counted(self.settings.get("steps").and_then(Value::as_u64).unwrap_or(0), "step"),
            setting("data"),
            setting("precision"),
            setting("seed")
        );
        if !matches!(setting("accumulate").as_str(), "" | "1") {
            run += &format!(", {} micro-batches per step", setting("accumulate"));
        }
        if !setting("eval-every").is_empty() {
            let (every, batches) = (setting("eval-every"), setting("eval-steps"));
            run += &format!(", after every {every} an evaluation of {batches} × {}", setting("eval-batch"));
        }
        if !setting("ema").is_empty() {
            run += &format!(", an average of its {}", if setting("ema") == "model" { "module" } else { "parameters" });
        }
        let mut memory = format!("{} allocator, profile {}", setting("allocator"), setting("like"));
        for (name, what) in [("memory-limit", "limit"), ("memory-fraction", "fraction"), ("alloc-conf", "settings")] {
            let value = self.settings.get(name).and_then(Value::as_u64).filter(|_| name == "memory-limit");
            let value = value.map_or_else(|| setting(name), both);
            memory += &if value.is_empty() { value } else { format!(", {what} {value}") };
        }
        let device = self.device.as_ref().map_or_else(String::new, |device| {
            let total = device.total_bytes.map_or(String::new(), |total| format!(", {}", short(total)));
            format!("\non {} {} ({}{total}); {memory}", device.backend, device.index, device.name)
        });
        // Those of a frozen network are not counted.
        let some = ["lora", "freeze"].iter().any(|name| !setting(name).is_empty());
        let counted = |n| counted(n, if some { "trained parameter" } else { "parameter" });
        let parameters = self.parameters.map_or(String::new(), |n| format!("; {}", counted(n)));
        format!("{}: {}{parameters}\n{run}{device}", self.model(), self.description.as_deref().unwrap_or_default())
    }

    /// Figures of losses, accuracy and time, if there are any.
    pub(super) fn values(&self) -> Vec<Figure> {
        let figure =
            |name: &str, value: String| Figure { name: name.into(), value: Cell::Text(value), note: String::new() };
        let mut figures = Vec::new();
        if let Some([Some(first), .., Some(last)]) = self.losses.as_deref() {
            figures.push(figure("loss", format!("{first:.6} at the first step, {last:.6} at the last")));
        }
        figures.extend(self.accuracy.map(|accuracy| figure("result", accuracy.text())));
        figures.extend(self.ms_per_step_median.map(|ms| figure("a step takes", format!("{} ms (median)", number(ms)))));
        figures
    }
}
