//! What `vramlab.export` writes beside the graph, as `extra/vramlab.json`: when Python drops each value that lives on after its last use,
//! which parameters are one, and whether the graph is that of one recorded call.
//!
//! ```json
//! {"version": 1, "dies_after": [["linear", "dropout_2"]], "tied": [["head.weight", "wte.weight"]], "recorded": false}
//! ```
//!
//! In Python a value lives until its name is bound to another one or its function returns; in a graph until its last use. `dies_after` has the
//! values of which the first is later, in the order in which they die, each with the value that was made last before it.

use std::cell::RefCell;
use std::collections::HashSet;

use lab_base::error::Result;
use serde::Deserialize;

use super::archive::Archive;

/// The entry of the archive, as the user's program names it for `torch.export.save`.
pub(super) const ENTRY: &str = "extra/vramlab.json";

/// The version that is read.
const VERSION: u64 = 1;

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    dies_after: Vec<(String, String)>,
    #[serde(default)]
    tied: Option<Vec<Vec<String>>>,
    #[serde(default)]
    recorded: bool,
}

/// When values die that live on after their last use, and which parameters are one.
#[derive(Default)]
pub(super) struct Lifetimes {
    /// Value and the value that was made last before its death, in the order of the deaths.
    dies_after: Vec<(String, String)>,
    /// Which of them a graph has taken.
    taken: RefCell<HashSet<usize>>,
    /// Paths of parameters that are one; `None` where the file does not say.
    pub tied: Option<Vec<Vec<String>>>,
    /// Whether the graph is one call's, with fixed sizes, and not an export's.
    pub is_recorded: bool,
}

impl Lifetimes {
    /// Those of an archive; none where it has no such entry.
    ///
    /// # Errors
    /// An entry of another version, one that is not what the format says, one value that dies twice.
    pub(super) fn of(archive: &mut Archive) -> Result<Option<Self>> {
        if !archive.has(ENTRY) {
            return Ok(None);
        }
        let Versioned { version } = archive.json(ENTRY)?;
        if version != VERSION {
            let problem = format!(
                "is of version {version}, and version {VERSION} is read: it was written by another release of vramlab; export the network \
                 once more with the package of this one"
            );
            return Err(archive.error(ENTRY, problem));
        }
        let Entry { dies_after, tied, recorded } = archive.json(ENTRY)?;
        let mut seen = HashSet::new();
        if let Some((value, _)) = dies_after.iter().find(|(value, _)| !seen.insert(value.as_str())) {
            return Err(archive.error(ENTRY, format!("the value {value} dies twice")));
        }
        Ok(Some(Self { dies_after, taken: RefCell::default(), tied, is_recorded: recorded }))
    }

    /// Those deaths of which a graph has both values, as what `value` and `place` say of the names: what dies, after what.
    pub(super) fn within<V, P>(
        &self,
        value: impl Fn(&str) -> Option<V>,
        place: impl Fn(&str) -> Option<P>,
    ) -> Vec<(&str, V, P)> {
        let mut found = Vec::new();
        for (number, (name, last)) in self.dies_after.iter().enumerate() {
            if let (Some(value), Some(place)) = (value(name), place(last)) {
                self.taken.borrow_mut().insert(number);
                found.push((name.as_str(), value, place));
            }
        }
        found
    }

    /// A death of which no graph has both values.
    pub(super) fn left(&self) -> Option<(&str, &str)> {
        let taken = self.taken.borrow();
        let left = self.dies_after.iter().enumerate().find(|(number, _)| !taken.contains(number));
        left.map(|(_, (value, last))| (value.as_str(), last.as_str()))
    }
}
