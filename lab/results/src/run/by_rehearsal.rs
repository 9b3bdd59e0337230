//! A prediction that a rehearsal made.

use lab_base::section::Section;

use super::super::chosen::ChosenNetwork;
use super::super::findings::Findings;
use super::super::rehearsal::RehearsalResult;
use super::super::rehearsal_exactness::exactness;
use super::prediction::Prediction;
use super::train::TrainResult;

impl TrainResult {
    /// Sections of a network that the user's Python built: the reason, the premises, what was chosen, how exact it is; then the rehearsal.
    pub(super) fn by_rehearsal(&self, prediction: &Prediction, chosen: &ChosenNetwork) -> Vec<Section> {
        let mut sections = prediction.why(self.peak.as_ref());
        sections.push(Section::Note(prediction.premises(&self.premises)));
        let rehearsal = self.rehearsal.as_deref();
        sections.extend(rehearsal.map(RehearsalResult::phases_in_words).unwrap_or_default());
        sections.extend(chosen.sections());
        sections.extend(self.tries.clone().map(Section::Try));
        let exactness = match self.warnings.is_empty() {
            true => rehearsal.and_then(exactness),
            false => {
                Some("Not exact: the warnings say how this training differs from the one that was asked for.".into())
            }
        };
        sections.extend(exactness.map(Section::Note));
        let mut more = chosen.details();
        more.extend(rehearsal.map(told).unwrap_or_default());
        sections.push(Section::Details { title: "The rehearsal".into(), sections: more });
        let program =
            format!("vramlab predict {} --script > predicted.py", super::super::command::quoted(&chosen.name));
        sections.push(Section::Command(program));
        sections
    }
}

/// What the rehearsal says besides its answer and its next commands, which name a script that the user does not have.
fn told(found: &RehearsalResult) -> Vec<Section> {
    let of_script = |section: &Section| match section {
        Section::Answer(_) | Section::Command(_) | Section::Try(_) => true,
        Section::Note(text) => text.starts_with("More: ") || text.starts_with("Try: "),
        _ => false,
    };
    let of_answer = found.phases_in_words();
    found.sections().into_iter().filter(|section| !of_script(section) && !of_answer.contains(section)).collect()
}
