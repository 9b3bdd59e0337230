//! One run (`vramlab-train-1`): what it took, when, and who held it; for a dry run also whether it fits, and what would change that.

mod by_rehearsal;
mod checkpoints;
mod convolutions;
mod figures;
mod leak;
mod measured;
mod prediction;
mod several;
mod split;
mod tables;
mod train;

use lab_base::figures::short;
use lab_base::section::{Section, Table};

use super::command;
use super::findings::{Findings, settings_table};
use super::premise;
use super::technique_words::techniques;

pub use checkpoints::{CheckpointRow, Checkpoints};
pub(crate) use convolutions::cudnn;
pub use convolutions::{ConvolutionBound, WorkspaceSource};
pub use figures::{
    AccuracyResult, ByCategory, FailedRequest, Needed, OutOfMemoryResult, OverheadPart, OverheadsResult, PeakResult,
    RingBytes, ScopeBytes, TopScope, by_category,
};
pub use prediction::{AS_IT_IS, NeedsResult, Prediction, TIGHT, TechniqueResult};
pub use split::{DataParallelFigures, RankResult, SentBytes, StageResult, StatesResult};
pub use train::TrainResult;

impl Findings for TrainResult {
    const SCHEMA: &'static str = "vramlab-train-1";

    fn title(&self) -> String {
        match &self.prediction {
            Some(prediction) => format!("{}: {}", prediction.verdict(), self.what()),
            None => self.measured_title(),
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.warnings.iter().cloned().map(Section::Warning).collect();
        let said = if self.is_no() { Section::Answer } else { Section::Failure };
        sections.extend(self.out_of_memory.iter().map(|failed| said(failed.message.clone())));
        match &self.prediction {
            Some(prediction) => sections.extend(self.predicted(prediction)),
            None => sections.extend(self.measured()),
        }
        let again = vec![Section::Command(command::of_run(&self.settings)), settings_table(&self.settings)];
        sections.push(Section::Details { title: "Do it again".into(), sections: again });
        sections
    }

    fn table(&self) -> Option<Table> {
        self.table_of_split().or_else(|| self.rows_table())
    }
}

impl TrainResult {
    /// Sections of a dry run: the reason, what would change the answer, the assumptions; then everything else.
    fn predicted(&self, prediction: &Prediction) -> Vec<Section> {
        if let Some(chosen) = &self.chosen {
            return self.by_rehearsal(prediction, chosen);
        }
        let fullest = || self.ranks.iter().map(|rank| &rank.account.peak).max_by_key(|peak| peak.bytes);
        let mut sections = prediction.why(self.peak.as_ref().or_else(fullest));
        sections.extend(self.interrupted_note());
        sections.extend(self.tries.clone().map(Section::Try));
        sections.extend(prediction.checkpoints.iter().flat_map(Checkpoints::sections));
        // Assumptions come last.
        sections.push(Section::Note(prediction.premises(&self.premises)));
        sections.extend(prediction.notes.iter().cloned().map(Section::Note));
        let mut more: Vec<Section> = prediction.in_full().into_iter().map(Section::Note).collect();
        more.extend(self.peak.iter().map(|peak| Section::Note(self.peak_in_words(peak))));
        more.push(Section::Note(self.header()));
        more.extend(prediction.sections(&self.warnings));
        sections
            .push(Section::Details { title: "The run, and what each technique would change".into(), sections: more });
        sections.extend(self.several());
        sections.extend(self.leak.iter().flat_map(leak::sections));
        sections.extend(self.memory_curve().map(Section::Drawing));
        sections.push(Section::Details { title: "In figures".into(), sections: self.details() });
        sections
    }

    /// Title of a run on a device: its settings and its peak.
    fn measured_title(&self) -> String {
        let said = |text: String| if text.is_empty() { text } else { format!(", {text}") };
        let batch = self.batch();
        let batch = if batch.is_empty() { batch } else { format!("batch {batch}") };
        let split = match self.devices.len() {
            0 => String::new(),
            devices => format!("split over {devices} devices"),
        };
        let techniques = techniques(&self.settings).join(", ");
        // With several devices, the fullest counts.
        let stages = self.devices.iter().map(|stage| &stage.account).chain(self.ranks.iter().map(|rank| &rank.account));
        let most = stages.map(|account| account.peak.bytes).max().or(self.peak.as_ref().map(|peak| peak.bytes));
        let peak = match (most, &self.out_of_memory) {
            (_, Some(_)) if self.is_no() => return format!("No: out of memory: {}", self.what()),
            (_, Some(_)) => ": out of memory".into(),
            (Some(bytes), None) => format!(": {} at the peak", short(bytes)),
            (None, None) => String::new(),
        };
        let parts = [techniques, batch, self.setting("optimizer"), split].map(said).concat();
        format!("{}{parts}{peak}", self.model())
    }

    /// Sections of a run on a device.
    fn measured(&self) -> Vec<Section> {
        let mut sections: Vec<Section> =
            self.peak.iter().map(|peak| Section::Answer(self.peak_in_words(peak))).collect();
        sections.extend(self.tries.clone().map(Section::Try));
        sections.extend(premise::section(&self.premises));
        sections.push(Section::Note(self.header()));
        sections.extend(self.several());
        sections.extend(self.figures());
        sections.extend(self.leak.iter().flat_map(leak::sections));
        sections.push(Section::Figures(self.values()));
        if let (None, None, Some(reason)) = (&self.ms_per_step_median, &self.out_of_memory, &self.reason) {
            sections.push(Section::Note(format!("Losses and times are missing: {reason}.")));
        }
        sections.extend(self.interrupted_note());
        sections.extend(self.memory_curve().map(Section::Drawing));
        sections.extend(self.loss_curve().map(Section::Drawing));
        sections.push(Section::Details { title: "In figures".into(), sections: self.details() });
        sections
    }

    /// True for a dry run of a split network that does not fit: it ended without an account of its devices.
    fn is_no(&self) -> bool {
        self.out_of_memory.is_some() && self.prediction.is_none() && self.device.is_none() && self.devices.is_empty()
    }

    fn interrupted_note(&self) -> Option<Section> {
        let text = "stopped early: this is what was measured until then.";
        self.interrupted.then(|| Section::Note(text.into()))
    }

    /// Names the run in a few words: `config.json, batch 4 × 2 048 tokens, bfloat16, adamw`.
    fn what(&self) -> String {
        let what = premise::what(&self.model(), &self.premises, &self.settings);
        let zero = self.setting("zero");
        let zero = if zero.is_empty() { zero } else { format!(", ZeRO-{zero}") };
        match self.setting("data-parallel").as_str() {
            "" | "1" => format!("{what}{zero}"),
            cards => format!("{what}{zero}, on each of {cards} cards"),
        }
    }
}
