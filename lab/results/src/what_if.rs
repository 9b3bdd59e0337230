//! Effects of other allocator settings, in results of runs.

use lab_base::changes::alloc_conf;
use lab_base::figures::{grouped, short};
use lab_base::section::{Section, Tries, Try};
use lab_traces::snapshot::{Setting, WhatIf};
use serde::{Deserialize, Serialize};

use super::self_check::SelfCheck;

/// Memory of a run under other allocator settings, by replay of its events. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WhatIfResult {
    /// Whether a replay under the recorded settings repeats the recording: if not, nothing is proposed.
    pub self_check: SelfCheck,
    /// Memory of the card that PyTorch can use; null if it is unlimited.
    pub capacity_bytes: Option<u64>,
    /// Result under the recorded settings; null if the self-check failed.
    pub recorded: Option<Setting>,
    /// Results under other settings, the best first.
    pub tried: Vec<Setting>,
}

/// Savings below this share of reserved memory are not worth a setting.
const WORTH: f64 = 0.02;

impl WhatIfResult {
    /// Of a replay.
    pub fn new(found: WhatIf, capacity_bytes: Option<u64>) -> Self {
        Self { self_check: (&found.check).into(), capacity_bytes, recorded: found.recorded, tried: found.tried }
    }

    /// Returns the setting to try first: the one that reserves least, or the defaults if they do as well.
    pub fn first(&self) -> Option<&Setting> {
        let best = self.tried.first()?;
        let most = best.cost.peak_reserved as f64 * (1.0 + WORTH);
        let as_well = |setting: &&Setting| {
            setting.is_plain() && setting.cost.failed == best.cost.failed && setting.cost.peak_reserved as f64 <= most
        };
        self.tried.iter().find(as_well).or(Some(best))
    }

    /// The setting to try first, if it is another than the recorded one.
    pub fn another(&self) -> Option<&Setting> {
        self.first().filter(|setting| setting.alloc_conf != self.recorded_conf())
    }

    /// A setting as a change: the defaults are the run without the recorded one.
    pub fn as_change(&self, alloc_conf: &str) -> String {
        if alloc_conf.is_empty() { format!("without {}", self.recorded_conf()) } else { alloc_conf.into() }
    }

    /// Says that something does not fit with a setting.
    pub fn does_not_help(&self, alloc_conf: &str, what: &str) -> String {
        match alloc_conf {
            "" => format!("Without {} {what} does not fit either.", self.recorded_conf()),
            setting => format!("{setting} does not make {what} fit."),
        }
    }

    fn recorded_conf(&self) -> &str {
        self.recorded.as_ref().map_or("", |recorded| &recorded.alloc_conf)
    }

    /// The best setting, if it helps: nothing fails any more, or clearly less is reserved.
    pub fn best(&self) -> Option<(&Setting, &Setting)> {
        let (recorded, best) = (self.recorded.as_ref()?, self.first()?);
        let less = recorded.cost.peak_reserved.saturating_sub(best.cost.peak_reserved) as f64;
        let helps = match (recorded.cost.failed, best.cost.failed) {
            (0, 0) => less >= WORTH * recorded.cost.peak_reserved as f64,
            (before, after) => before > 0 && after == 0,
        };
        helps.then_some((recorded, best))
    }

    /// The best setting, checked by replay; a sentence where none helps. `file`: the recording, where a command can repeat that. `peak`: the
    /// peak of what is allocated, which a setting hardly changes.
    pub(super) fn section(&self, file: Option<&str>, peak: Option<u64>) -> Section {
        let Some((recorded, best)) = self.best() else { return Section::Note(self.why_nothing()) };
        let reserved = best.cost.peak_reserved;
        let name = self.as_change(&best.alloc_conf);
        let change = match recorded.cost.failed {
            0 => format!("{name} ({} reserved before)", short(recorded.cost.peak_reserved)),
            _ => format!("{name}: nothing fails as far as the recording goes"),
        };
        let file = file.map(super::command::quoted);
        let entry = Try {
            change,
            script: alloc_conf(&best.alloc_conf),
            flags: String::new(),
            command: file
                .map(|file| format!("vramlab replay {file} --alloc-conf {}", super::command::quoted(&best.alloc_conf))),
            checked: true,
            peak_bytes: peak,
            reserved_bytes: Some(reserved),
            left_bytes: self.capacity_bytes.map(|capacity| capacity.saturating_sub(reserved)),
            ..Try::default()
        };
        let order = format!("Try (checked by replay; {})", self.self_check.in_a_word());
        Section::Try(Tries { order, entries: vec![entry], ..Tries::default() })
    }

    /// Why nothing is proposed.
    pub fn why_nothing(&self) -> String {
        match &self.recorded {
            None => "What other settings do is not known: the replay does not repeat the recording.".into(),
            Some(_) => format!(
                "No setting of the allocator helps ({} tried by replay; {}).",
                grouped(self.tried.len() as u64, ' '),
                self.self_check.in_a_word()
            ),
        }
    }

    /// For those who want to know.
    pub(super) fn details(&self) -> Section {
        use lab_base::section::{Cell, Table};
        let row = |setting: &Setting| {
            let name = if setting.alloc_conf.is_empty() { "(defaults)" } else { &setting.alloc_conf };
            vec![
                Cell::Text(name.into()),
                Cell::Bytes(setting.cost.peak_reserved),
                Cell::Count(setting.cost.driver_calls),
                Cell::Count(setting.cost.failed),
            ]
        };
        let columns = ["settings", "reserved at most", "driver calls", "failed"];
        let rows = self.recorded.iter().chain(&self.tried).map(row).collect();
        let sections = vec![Section::Table(Table::new("", &columns, rows)), Section::Note(self.self_check.in_words())];
        Section::Details { title: "Other settings of the allocator, by replay".into(), sections }
    }
}
