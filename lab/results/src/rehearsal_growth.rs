//! Whether the memory of a rehearsed script grows from step to step, and who holds what grows.

use lab_base::figures::{counted, grouped, short};
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
    /// Lines of the script that run only every so many steps, where these steps do not show what they keep.
    #[serde(default)]
    pub seldom: Vec<SeldomLine>,
}

/// Line of the script that runs only every so many steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeldomLine {
    /// File and line.
    #[serde(rename = "where")]
    pub place: String,
    /// Number of steps, or of turns.
    pub every: u64,
    /// What is counted: `step`; `turn` of a loop of which each makes many steps; `epoch`, where that loop is not known.
    pub of: String,
    /// File and line of that loop; null if steps are counted, or it is not known.
    pub loop_at: Option<String>,
}

impl SeldomLine {
    /// Says how often it runs.
    fn in_words(&self) -> String {
        let times = grouped(self.every, ' ');
        match (self.of.as_str(), &self.loop_at) {
            ("turn", Some(at)) => format!("every {times} turns of the loop at {at}"),
            ("step", _) => format!("every {times} steps"),
            _ => format!("every {times} epochs"),
        }
    }
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

/// Most of these lines that the answer names.
const SELDOM: usize = 3;

impl RehearsedGrowth {
    /// Names the lines that run only every so many steps, if these steps do not show what they keep.
    pub(super) fn seldom_in_words(&self) -> Option<String> {
        let named = |line: &SeldomLine| format!("{} runs {}", line.place, line.in_words());
        let mut names: Vec<String> = self.seldom.iter().take(SELDOM).map(named).collect();
        names.extend((self.seldom.len() > SELDOM).then(|| match self.seldom.len() - SELDOM {
            1 => "1 more runs seldom".to_string(),
            more => format!("{more} more run seldom"),
        }));
        let last = names.pop()?;
        let all = if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) };
        let (show, keep) = (
            if self.steps == 1 { "does not show" } else { "do not show" },
            if self.seldom.len() == 1 { "it keeps" } else { "they keep" },
        );
        Some(format!("{all}: {} {show} what {keep}.", counted(self.steps, "step")))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_run_seldom_are_named_in_one_sentence() {
        let line = |place: &str, every, of: &str, loop_at: Option<&str>| SeldomLine {
            place: place.into(),
            every,
            of: of.into(),
            loop_at: loop_at.map(String::from),
        };
        let mut growth = RehearsedGrowth { steps: 3, ..RehearsedGrowth::default() };
        assert_eq!(growth.seldom_in_words(), None);
        growth.seldom = vec![line("train.py:30", 1000, "step", None)];
        let said = growth.seldom_in_words().unwrap();
        assert_eq!(said, "train.py:30 runs every 1 000 steps: 3 steps do not show what it keeps.");
        growth.seldom.push(line("train.py:44", 5, "turn", Some("train.py:12")));
        growth.seldom.push(line("log.py:4", 2, "epoch", None));
        growth.seldom.push(line("log.py:9", 2, "epoch", None));
        let said = growth.seldom_in_words().unwrap();
        let expected = "train.py:30 runs every 1 000 steps, train.py:44 runs every 5 turns of the loop at train.py:12, \
                        log.py:4 runs every 2 epochs and 1 more runs seldom: 3 steps do not show what they keep.";
        assert_eq!(said, expected);
    }
}
