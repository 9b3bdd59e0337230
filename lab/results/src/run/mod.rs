//! One run (`vramlab-train-1`): what it took, when, who held it; on paper also whether it fits, and what would change it.

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

pub use figures::{
    AccuracyResult, ByCategory, FailedRequest, Needed, OutOfMemoryResult, OverheadPart, OverheadsResult, PeakResult,
    RingBytes, ScopeBytes, TopScope, by_category,
};
pub use prediction::{AS_IT_IS, NeedsResult, Prediction, TechniqueResult};
pub use split::{DataParallelFigures, RankResult, SentBytes, StageResult, StatesResult};
pub use train::TrainResult;

impl Findings for TrainResult {
    const SCHEMA: &'static str = "vramlab-train-1";

    fn title(&self) -> String {
        let batch = self.setting("batch");
        let batch = if batch.is_empty() { batch } else { format!(", batch {batch}") };
        let optimizer = self.setting("optimizer");
        let optimizer = if optimizer.is_empty() { optimizer } else { format!(", {optimizer}") };
        // Of several devices, the fullest.
        let stages = self.devices.iter().map(|stage| &stage.account).chain(self.ranks.iter().map(|rank| &rank.account));
        let most = stages.map(|account| account.peak.bytes).max().or(self.peak.as_ref().map(|peak| peak.bytes));
        let peak = most.filter(|_| self.out_of_memory.is_none() && self.prediction.is_none());
        let peak = match (peak, &self.prediction, &self.out_of_memory) {
            (Some(bytes), ..) => format!(": {} at the peak", short(bytes)),
            (None, None, Some(_)) => ": out of memory".into(),
            _ => String::new(),
        };
        format!("{}{batch}{optimizer}{peak}", self.model())
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.warnings.iter().cloned().map(Section::Warning).collect();
        sections.extend(self.out_of_memory.iter().map(|failed| Section::Failure(failed.message.clone())));
        sections.extend(self.prediction.iter().filter_map(Prediction::verdict).map(Section::Answer));
        sections.extend(self.peak.iter().map(|peak| Section::Answer(self.peak_in_words(peak))));
        sections.extend(premise::section(&self.premises));
        sections
            .extend(self.prediction.iter().flat_map(|prediction| prediction.notes.iter().cloned().map(Section::Note)));
        sections.push(Section::Note(self.header()));
        sections.extend(self.prediction.iter().flat_map(|prediction| prediction.sections(&self.warnings)));
        sections.extend(self.several());
        // On paper what would change it says more.
        if self.prediction.is_none() {
            sections.extend(self.figures());
        }
        sections.extend(self.leak.iter().flat_map(leak::sections));
        sections.push(Section::Figures(self.values()));
        if let (None, None, Some(reason)) = (&self.ms_per_step_median, &self.out_of_memory, &self.reason) {
            sections.push(Section::Note(format!("no losses and no times: {reason}")));
        }
        if self.interrupted {
            sections.push(Section::Note("stopped early: this is what was measured until then.".into()));
        }
        sections.extend(self.memory_curve().map(Section::Drawing));
        sections.extend(self.loss_curve().map(Section::Drawing));
        sections.push(Section::Details { title: "In figures".into(), sections: self.details() });
        let again = vec![Section::Command(command::of_run(&self.settings)), settings_table(&self.settings)];
        sections.push(Section::Details { title: "Do it again".into(), sections: again });
        sections
    }

    fn table(&self) -> Option<Table> {
        self.table_of_split().or_else(|| self.rows_table())
    }
}
