//! The best settings of the allocator for a recording (`vramlab-tune-1`).

use lab_base::changes::alloc_conf;
use lab_base::figures::{both, counted, grouped, signed};
use lab_base::section::{Cell, Section, Table, Tries, Try};
use lab_traces::snapshot::{Candidate, Cost, Releases, Tuned};
use serde::{Deserialize, Serialize};

use super::command::quoted;
use super::findings::{Findings, file_name};
use super::other_devices::ChosenDevice;
use super::self_check::SelfCheck;

/// Result of a search for settings. Its findings are null if the recorded settings do not reproduce the recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TuneResult {
    /// The recorded settings.
    pub recorded: Option<Candidate>,
    /// Best settings that are proposed; the recorded ones if none are better.
    pub best: Option<Candidate>,
    /// Still better settings that only the later of the possible releases can read.
    pub newer: Option<Candidate>,
    /// Settings that were better only on the part that the search saw.
    pub overfitted: Option<Candidate>,
    /// All settings that were tried, best first.
    pub tried: Vec<Candidate>,
    /// Operations that the search saw, and those that were held out.
    pub operations: Option<SearchedOperations>,
    /// The most bytes that are live at one time: no settings need less. Bytes.
    pub lower_bound_bytes: u64,
    /// For a snapshot: whether a replay under its own settings reproduces it.
    pub self_check: Option<SelfCheck>,
    /// Index of the device, and the others of the file that have memory or a trace; null without a snapshot.
    #[serde(default)]
    pub device: Option<ChosenDevice>,
    /// The file.
    #[serde(skip)]
    pub file: String,
    /// Releases that may have made the recording.
    #[serde(skip)]
    pub releases: Option<Releases>,
}

/// Operations that a search saw, and those that were held out.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SearchedOperations {
    /// The first of the recording.
    pub searched: usize,
    /// The rest.
    pub held_out: usize,
}

/// Number of choices that are listed.
const TOP: usize = 8;
/// Number of choices in a short answer.
const BRIEF: usize = 4;

impl TuneResult {
    /// Makes the result of a search in a file's recording.
    pub fn new(file: &str, tuned: Tuned, releases: Releases, self_check: Option<SelfCheck>) -> Self {
        let (searched, held_out) = tuned.operations;
        Self {
            recorded: Some(tuned.recorded),
            best: Some(tuned.best),
            newer: tuned.newer,
            overfitted: tuned.overfitted,
            tried: tuned.tried,
            operations: Some(SearchedOperations { searched, held_out }),
            lower_bound_bytes: tuned.lower_bound,
            self_check,
            device: None,
            file: file.into(),
            releases: Some(releases),
        }
    }

    /// Makes the result for a replay that differs from the recording: it proposes nothing.
    pub fn not_reproduced(file: &str, lower_bound_bytes: u64, self_check: SelfCheck) -> Self {
        Self {
            recorded: None,
            best: None,
            newer: None,
            overfitted: None,
            tried: Vec::new(),
            operations: None,
            lower_bound_bytes,
            self_check: Some(self_check),
            device: None,
            file: file.into(),
            releases: None,
        }
    }

    /// What is proposed; `None` where that is what was recorded.
    fn proposed(&self) -> Option<(&Candidate, &Candidate)> {
        let (recorded, best) = (self.recorded.as_ref()?, self.best.as_ref()?);
        (best.alloc_conf != recorded.alloc_conf).then_some((recorded, best))
    }

    /// What is proposed, as a script's environment has it.
    fn tries(&self) -> Option<Tries> {
        let (recorded, best) = self.proposed()?;
        let change = match best.alloc_conf.as_str() {
            "" => format!("without {}", recorded.alloc_conf),
            settings => settings.to_string(),
        };
        let (whole, part) = (best.whole.as_ref(), "on the part that the search saw");
        let entry = Try {
            change: if whole.is_some() { change } else { format!("{change}, {part}") },
            script: setting(best),
            command: Some(format!("vramlab replay {} --alloc-conf {}", quoted(&self.file), quoted(&best.alloc_conf))),
            checked: true,
            reserved_bytes: Some(whole.unwrap_or(&best.searched).peak_reserved),
            ..Try::default()
        };
        let order = match &self.self_check {
            Some(check) => format!("Try (checked by replay; {})", check.in_a_word()),
            None => "Try (checked by replay)".into(),
        };
        Some(Tries { order, entries: vec![entry], ..Tries::default() })
    }

    /// What it saves, on all of the recording and on its parts.
    fn savings(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some((recorded, best)) = self.proposed() {
            let both = |before: &Option<Cost>, after: &Option<Cost>| {
                Some((before.as_ref().copied()?, after.as_ref().copied()?))
            };
            let parts = [
                ("In the whole recording", both(&recorded.whole, &best.whole)),
                ("On the part that the search saw", Some((recorded.searched, best.searched))),
                ("On the rest, which it did not see", both(&recorded.held_out, &best.held_out)),
            ];
            out.extend(
                parts.iter().filter_map(|(what, costs)| costs.map(|(before, after)| saves(what, &before, &after))),
            );
        }
        if let (Some(newer), Some(before), Some(Releases { oldest, newest })) =
            (&self.newer, self.recorded.as_ref().and_then(|recorded| recorded.whole), self.releases)
        {
            let release = if oldest == newest { oldest.to_string() } else { format!("{oldest} to {newest}") };
            let what = format!("The recording is of PyTorch {release}; the later of them also read {}", setting(newer));
            out.push(newer.whole.as_ref().map_or(what.clone(), |after| saves(&what, &before, after)));
        }
        if let Some(overfitted) = &self.overfitted {
            let name = name(overfitted);
            out.push(format!("{name} was better only on the part that the search saw, and is not proposed."));
        }
        out
    }

    fn table(&self, rows: usize) -> Table {
        let row = |candidate: &Candidate| {
            let Cost { failed, peak_reserved, driver_calls } = candidate.searched;
            let name = Cell::Text(name(candidate).replace(',', ", "));
            vec![name, Cell::Bytes(peak_reserved), Cell::Count(driver_calls), Cell::Count(failed)]
        };
        let title = format!("Best of {} on the part that the search saw", counted(self.tried.len() as u64, "choice"));
        let columns = ["settings", "peak reserved", "driver calls", "failed"];
        Table::new(title, &columns, self.tried.iter().take(rows).map(row).collect())
    }
}

fn name(candidate: &Candidate) -> &str {
    match candidate.alloc_conf.as_str() {
        "" => "(defaults)",
        other => other,
    }
}

/// As it is set: the variable has this name in all releases from 1.10 on; from 2.10 on it has a second one.
fn setting(candidate: &Candidate) -> String {
    alloc_conf(&candidate.alloc_conf)
}

fn saves(what: &str, before: &Cost, after: &Cost) -> String {
    let mut text = format!(
        "{what}: peak reserved {} instead of {} ({}), {} instead of {} calls of the driver",
        both(after.peak_reserved),
        both(before.peak_reserved),
        signed(after.peak_reserved as i64 - before.peak_reserved as i64),
        grouped(after.driver_calls, ' '),
        grouped(before.driver_calls, ' ')
    );
    if before.failed + after.failed > 0 {
        text += &format!(", {} instead of {} requests fail", after.failed, before.failed);
    }
    text + "."
}

impl Findings for TuneResult {
    const SCHEMA: &'static str = "vramlab-tune-1";

    fn title(&self) -> String {
        match (self.proposed(), &self.recorded) {
            (Some((recorded, best)), _) if best.alloc_conf.is_empty() => {
                format!(
                    "{}: the defaults are better than the recorded settings, {}",
                    file_name(&self.file),
                    name(recorded)
                )
            }
            (Some((_, best)), _) => setting(best),
            (None, Some(recorded)) => {
                format!("{}: no settings are better than the recorded ones, {}", file_name(&self.file), name(recorded))
            }
            (None, None) => {
                format!("{}: nothing is proposed: the replay does not repeat this recording", file_name(&self.file))
            }
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.tries().map(Section::Try).into_iter().collect();
        let mut savings = self.savings().into_iter().map(Section::Note);
        sections.extend(savings.next());
        sections.push(Section::Rest(savings.collect()));
        sections.extend(self.device.as_ref().and_then(ChosenDevice::in_words).map(Section::Note));
        if let Some(SearchedOperations { searched, held_out }) = self.operations {
            sections.push(Section::Note(format!(
                "Searched on the first {} operations, checked on the last {}. No setting takes less than {}, which live at once.",
                grouped(searched as u64, ' '),
                grouped(held_out as u64, ' '),
                both(self.lower_bound_bytes)
            )));
            sections.push(Section::List(self.table(BRIEF)));
            let more = "More choices, and the self-check segment by segment: --full.";
            sections
                .extend(self.self_check.as_ref().map(|check| Section::Note(format!("{} {more}", check.in_short()))));
            sections.push(Section::Rest(vec![Section::Table(self.table(TOP))]));
        }
        let check = self.self_check.as_ref().map(|check| Section::Note(check.in_words()));
        match self.operations {
            // Why nothing is proposed.
            None => sections.extend(check),
            Some(_) => sections.push(Section::Rest(check.into_iter().collect())),
        }
        sections
    }

    fn table(&self) -> Option<Table> {
        self.operations.as_ref().map(|_| TuneResult::table(self, TOP))
    }
}
