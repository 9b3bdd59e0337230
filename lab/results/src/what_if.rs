//! What other settings of the allocator would have done, in results of runs.

use lab_base::figures::{grouped, short};
use lab_base::section::Section;
use lab_traces::snapshot::{Setting, WhatIf};
use serde::{Deserialize, Serialize};

use super::self_check::SelfCheck;

/// What a run would have taken under other settings of the allocator, by replay of its events. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WhatIfResult {
    /// Whether a replay under the recorded settings repeats the recording: if not, nothing is proposed.
    pub self_check: SelfCheck,
    /// What there is for PyTorch on the card; null: as much as it wants.
    pub capacity_bytes: Option<u64>,
    /// The recorded settings there; null where the self-check failed.
    pub recorded: Option<Setting>,
    /// The others, the best first.
    pub tried: Vec<Setting>,
}

/// Less than this share of what is reserved is not worth a setting.
const WORTH: f64 = 0.01;

impl WhatIfResult {
    /// Of a replay.
    pub fn of(found: WhatIf, capacity_bytes: Option<u64>) -> Self {
        Self { self_check: (&found.check).into(), capacity_bytes, recorded: found.recorded, tried: found.tried }
    }

    /// The best setting, if it helps: nothing fails any more, or clearly less is reserved.
    pub fn best(&self) -> Option<(&Setting, &Setting)> {
        let (recorded, best) = (self.recorded.as_ref()?, self.tried.first()?);
        let less = recorded.cost.peak_reserved.saturating_sub(best.cost.peak_reserved) as f64;
        let helps = match (recorded.cost.failed, best.cost.failed) {
            (0, 0) => less >= WORTH * recorded.cost.peak_reserved as f64,
            (before, after) => before > 0 && after == 0,
        };
        helps.then_some((recorded, best))
    }

    /// The best setting as it is typed, and what it does; `None` where none helps.
    pub fn proposal(&self) -> Option<(String, String)> {
        let (recorded, best) = self.best()?;
        let command = format!("PYTORCH_CUDA_ALLOC_CONF={}", best.alloc_conf);
        let does = match recorded.cost.failed {
            0 => {
                format!("reserves {} instead of {}", short(best.cost.peak_reserved), short(recorded.cost.peak_reserved))
            }
            _ => format!("nothing fails, and {} is reserved at most", short(best.cost.peak_reserved)),
        };
        Some((command, format!("{does} (by replay; its self-check is exact)")))
    }

    /// Why nothing is proposed.
    pub fn why_nothing(&self) -> String {
        match &self.recorded {
            None => "What other settings would do is not known: the replay does not repeat this recording.".into(),
            Some(_) => format!(
                "No setting of the allocator helps ({} tried by replay; its self-check is exact).",
                grouped(self.tried.len() as u64, ' ')
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
