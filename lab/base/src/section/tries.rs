//! Changes to try, as data.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Changes that the search cannot try, and the command that counts them.
pub const NOT_HERE: &str = "vramlab did not offload states. `vramlab predict train.py` counts a script's.";

/// The most entries that an answer shows.
pub const MOST: usize = 4;

/// Changes to a run, the best first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tries {
    /// Order of the entries, and how they were checked.
    pub order: String,
    /// At most four.
    pub entries: Vec<Try>,
    /// How the search went; empty if there is nothing to say.
    pub search: String,
    /// Changes that were not tried because they are not supported; empty for a rehearsal.
    pub not_here: String,
}

/// A change. It has no figures if nothing was run for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Try {
    /// The change in words.
    pub change: String,
    /// Code for the script.
    pub script: String,
    /// Flags that make the change; they replace flags of the same name.
    pub flags: String,
    /// Every field of the changed run, by name; empty if the change is none of a run.
    #[serde(skip)]
    pub fields: Map<String, Value>,
    /// Command that repeats it; null if there is none.
    pub command: Option<String>,
    /// Whether it was run.
    pub checked: bool,
    /// Peak of allocated memory. Bytes.
    pub peak_bytes: Option<u64>,
    /// Peak of reserved memory, on this card if one was named. Bytes.
    pub reserved_bytes: Option<u64>,
    /// Memory of the card that remains free; null without a card. Bytes.
    pub left_bytes: Option<u64>,
}

impl Tries {
    /// Returns an answer without entries: nothing is known to help.
    pub fn none(order: impl Into<String>) -> Self {
        Self { order: order.into(), not_here: NOT_HERE.into(), ..Self::default() }
    }
}
