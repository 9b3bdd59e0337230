//! What to change, as data.

use serde::{Deserialize, Serialize};

/// What no search here can try, and what can.
pub const NOT_HERE: &str = "not here: LoRA, 8-bit optimizers, offload; `vramlab rehearse` runs them";

/// The most entries of an answer.
pub const MOST: usize = 4;

/// What to change in a run, the best first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tries {
    /// In which order the entries stand, and how they were checked.
    pub order: String,
    /// At most four.
    pub entries: Vec<Try>,
    /// How the search went; empty where there is nothing to say.
    pub search: String,
    /// What was not tried because it is not represented; empty where a rehearsal was asked.
    pub not_here: String,
}

/// A change. What nothing was run for has no figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Try {
    /// What changes, in words.
    pub change: String,
    /// What to write in the script.
    pub script: String,
    /// The flags that make the change, in place of those of the same name.
    pub flags: String,
    /// The command that repeats it; null where none does.
    pub command: Option<String>,
    /// Whether it was run.
    pub checked: bool,
    /// The most that is allocated at once. Bytes.
    pub peak_bytes: Option<u64>,
    /// The most that is reserved, on this card where one was named. Bytes.
    pub reserved_bytes: Option<u64>,
    /// What is left of the card; null without one. Bytes.
    pub left_bytes: Option<u64>,
}

impl Tries {
    /// Where nothing is known to help.
    pub fn none(order: impl Into<String>) -> Self {
        Self { order: order.into(), not_here: NOT_HERE.into(), ..Self::default() }
    }
}
