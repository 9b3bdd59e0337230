//! Whether the memory of a rehearsed script grows from step to step, and who holds what grows.

use lab_base::figures::short;
use lab_base::section::Cell;
use serde::{Deserialize, Serialize};

/// Growth of memory from step to step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RehearsedGrowth {
    /// `flat`: a step requested what the last one did, and left the same blocks. `bounded`: steps differ, and nothing keeps growing.
    /// `leak`: something grows that nothing ends. `may_fill`: what grows may have an end. `cycles`: what grows is freed when Python
    /// collects its garbage. `slow`: the card would last for ten million steps. `unseen`: the steps are too few to tell.
    pub trend: String,
    /// Number of steps that were looked at.
    pub steps: u64,
    /// Bytes that a step adds; 0 if nothing grows.
    pub bytes_per_step: u64,
    /// Step at which the card is full, if it goes on so; null if nothing grows.
    pub full_at_step: Option<u64>,
    /// What grows, by line of the script, most first.
    pub lines: Vec<GrowingLine>,
}

/// Memory of one line that grows from step to step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrowingLine {
    /// Bytes that a step adds.
    pub bytes_per_step: u64,
    /// Bytes of the smallest block.
    pub smallest_bytes: u64,
    /// Bytes of the largest block.
    pub largest_bytes: u64,
    /// Blocks that were added.
    pub count: u64,
    /// File and line that allocate it; null if none is known.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// The innermost line outside of PyTorch: a library's, or the same.
    pub inside: Option<String>,
    /// PyTorch's function there.
    pub operator: Option<String>,
    /// Who holds it, in a few words; null if that was not found.
    pub holder: Option<String>,
    /// Line at which the script puts it there; null if that was not found.
    pub held_at: Option<String>,
    /// `leak`, `may_fill` or `cycles`.
    pub kind: String,
    /// Line that empties the holder or limits its length; null if there is none.
    pub emptied_at: Option<String>,
    /// Entries that the holder has at most; null without a limit.
    pub limit: Option<u64>,
}

impl RehearsedGrowth {
    /// True if memory may run out later, or if the steps do not tell.
    pub fn is_open(&self) -> bool {
        matches!(self.trend.as_str(), "leak" | "may_fill" | "cycles" | "unseen")
    }

    /// True if something grows.
    pub fn grows(&self) -> bool {
        self.is_open() && self.trend != "unseen"
    }
}

impl GrowingLine {
    /// Returns the cells of a row: bytes of a step, sizes, place, holder.
    pub(super) fn row(&self) -> Vec<Cell> {
        let size = match self.smallest_bytes == self.largest_bytes {
            true => short(self.largest_bytes),
            false => format!("{} to {}", short(self.smallest_bytes), short(self.largest_bytes)),
        };
        let mut place =
            self.place.clone().or_else(|| self.inside.clone()).unwrap_or_else(|| "no line of Python".into());
        if let Some(operator) = &self.operator {
            place += &format!(" {operator}");
        }
        vec![Cell::Bytes(self.bytes_per_step), Cell::Text(size), Cell::Text(place), Cell::Text(self.held_in_words())]
    }

    /// Says who holds it, where it is put there, and what may end its growth.
    pub(super) fn held_in_words(&self) -> String {
        if self.kind == "cycles" {
            let holder = self.holder.as_ref().map_or(String::new(), |holder| format!(" ({holder})"));
            return format!("a reference cycle{holder}, until Python collects its garbage");
        }
        let Some(holder) = &self.holder else { return "not found".into() };
        let at = self.held_at.as_ref().map_or(String::new(), |line| format!(", {line}"));
        let end = match (&self.limit, &self.emptied_at) {
            (Some(limit), _) => format!(" (at most {limit} entries)"),
            (None, Some(line)) => format!(" (emptied or limited at {line})"),
            (None, None) => String::new(),
        };
        format!("{holder}{at}{end}")
    }
}
