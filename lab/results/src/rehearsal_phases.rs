//! Phases of a rehearsed script in words.

use lab_base::section::{Cell, Section, Table};

use super::rehearsal::{RehearsalResult, RehearsedPhase};

impl RehearsalResult {
    /// A row for each phase, and a sentence on which one decides; nothing unless they were asked for.
    pub(super) fn phases_in_words(&self) -> Vec<Section> {
        let Some(most) = self.phases.iter().rev().max_by_key(|phase| phase.peak_reserved) else { return Vec::new() };
        let columns = ["phase", "allocated", "reserved", "fits", "where"];
        let table = Table::new("Phases", &columns, self.phases.iter().map(row).collect());
        let rest = self.phases.iter().filter(|phase| phase.fits != most.fits).count();
        let note = match (most.fits, self.phases.len()) {
            (_, 1) => format!("Only one phase was seen: {}.", most.name),
            (Some(false), _) if rest > 0 => {
                format!("Memory is enough to {}, and not to {}.", self.named(true), self.named(false))
            }
            _ => format!("Most is reserved to {}.", most.name),
        };
        vec![Section::Table(table), Section::Note(note)]
    }

    /// The phases that fit, or those that do not.
    fn named(&self, fit: bool) -> String {
        let names: Vec<&str> = self
            .phases
            .iter()
            .filter(|phase| (phase.fits == Some(false)) != fit)
            .map(|phase| phase.name.as_str())
            .collect();
        names.join(", ")
    }
}

fn row(phase: &RehearsedPhase) -> Vec<Cell> {
    let fits = match phase.fits {
        Some(true) => "yes",
        Some(false) => "no",
        None => "perhaps",
    };
    let place = match (&phase.place, &phase.operator) {
        (Some(place), Some(operator)) => format!("{place} {operator}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => "–".into(),
    };
    let texts = [fits.to_string(), place].map(Cell::Text);
    let peaks = [phase.peak_allocated, phase.peak_reserved].map(Cell::Bytes);
    [vec![Cell::Text(phase.name.clone())], peaks.to_vec(), texts.to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, reserved: u64, fits: Option<bool>) -> RehearsedPhase {
        RehearsedPhase { name: name.into(), peak_reserved: reserved, fits, ..RehearsedPhase::default() }
    }

    fn note(phases: &[RehearsedPhase]) -> String {
        let found = RehearsalResult { phases: phases.to_vec(), ..RehearsalResult::default() };
        match found.phases_in_words().pop() {
            Some(Section::Note(text)) => text,
            _ => String::new(),
        }
    }

    #[test]
    fn the_phase_that_decides_is_named() {
        let [load, train, save] = [("load", 1, true), ("train", 3, true), ("save", 3, true)]
            .map(|(name, reserved, fits)| phase(name, reserved, Some(fits)));
        assert_eq!(note(&[load.clone(), train.clone(), save]), "Most is reserved to train.");
        let evaluate = phase("evaluate", 9, Some(false));
        assert_eq!(note(&[load.clone(), train, evaluate]), "Memory is enough to load, train, and not to evaluate.");
        assert_eq!(note(&[load]), "Only one phase was seen: load.");
        assert_eq!(note(&[]), "");
    }
}
