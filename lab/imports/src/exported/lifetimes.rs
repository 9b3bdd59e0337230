//! `extra/vramlab.json`, which `vramlab.export` writes beside the graph: when Python drops each value that lives on after its last use,
//! which parameters are tied, and whether the graph records one call.
//!
//! ```json
//! {"version": 1, "dies_after": [["linear", "dropout_2"]], "tied": [["head.weight", "wte.weight"]], "recorded": false,
//!  "moved_before": [["layers.*.rotary", "layers.*.mlp"]]}
//! ```
//!
//! In Python a value lives until its name is bound to another value or its function returns; in a graph it lives until its last use. `dies_after`
//! lists the values that live longer in Python, in the order of their deaths, each with the value that was made last before its death. Where several graphs of
//! the file have one of the names, that of the region follows (`["getitem_2", "mul_3", "submod_1"]`), empty for the graph that has the regions.

use std::cell::RefCell;
use std::collections::HashSet;

use lab_base::error::Result;
use serde::Deserialize;

use super::archive::Archive;

/// Name of the entry in the archive; `torch.export.save` puts it below `extra/`.
pub(super) const ENTRY: &str = "extra/vramlab.json";

/// Version of this entry, and of that of an evaluation, that this release reads.
pub(super) const VERSION: u64 = 1;

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    dies_after: Vec<Death>,
    #[serde(default)]
    tied: Option<Vec<Vec<String>>>,
    #[serde(default)]
    recorded: bool,
    #[serde(default)]
    moved_before: Vec<(String, String)>,
}

/// The death of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(super) struct Death {
    value: String,
    /// The value that was made last before it.
    last: String,
    /// The region whose graph has both, empty for the graph that has the regions; `None` if only one graph has them.
    region: Option<String>,
}

impl TryFrom<Vec<String>> for Death {
    type Error = &'static str;

    fn try_from(names: Vec<String>) -> std::result::Result<Self, Self::Error> {
        let mut names = names.into_iter();
        match (names.next(), names.next(), names.next(), names.next()) {
            (Some(value), Some(last), region, None) => Ok(Self { value, last, region }),
            _ => Err("a death has two names, and at most that of a region"),
        }
    }
}

/// Deaths of the values that live on after their last use, and tied parameters.
#[derive(Default)]
pub(super) struct Lifetimes {
    /// In their order.
    dies_after: Vec<Death>,
    /// Indices in `dies_after` of the deaths that a graph has taken.
    taken: RefCell<HashSet<usize>>,
    /// Groups of paths that share one parameter; `None` if the file does not say.
    pub tied: Option<Vec<Vec<String>>>,
    /// Modules without parameters, each with the module before which `model.to` moves it; `*` stands for a layer's number.
    pub moved_before: Vec<(String, String)>,
    /// True if the graph records one call, with fixed sizes, and does not come from `torch.export`.
    pub is_recorded: bool,
}

impl Lifetimes {
    /// Reads the lifetimes of an archive; `None` if it has no such entry.
    ///
    /// # Errors
    /// An entry of another version or in another format; a value that dies twice.
    pub(super) fn read(archive: &mut Archive) -> Result<Option<Self>> {
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
        let Entry { dies_after, tied, recorded, moved_before } = archive.json(ENTRY)?;
        let deaths = Self::of_deaths(dies_after);
        let deaths = deaths.map_err(|value| archive.error(ENTRY, format!("the value {value} dies twice")))?;
        Ok(Some(Self { tied, is_recorded: recorded, moved_before, ..deaths }))
    }

    /// Takes deaths alone.
    ///
    /// # Errors
    /// A value that dies twice.
    pub(super) fn of_deaths(dies_after: Vec<Death>) -> std::result::Result<Self, String> {
        let mut seen = HashSet::new();
        match dies_after.iter().find(|death| !seen.insert((&death.value, &death.region))) {
            Some(death) => Err(death.value.clone()),
            None => Ok(Self { dies_after, ..Self::default() }),
        }
    }

    /// Returns the deaths of which the graph of this region has both values, and marks them as taken. Each is the dying value's name, the result of `value`
    /// for that name, and the result of `place` for the value that was made last before the death.
    pub(super) fn within<V, P>(
        &self,
        region: &str,
        value: impl Fn(&str) -> Option<V>,
        place: impl Fn(&str) -> Option<P>,
    ) -> Vec<(&str, V, P)> {
        let mut found = Vec::new();
        for (number, death) in self.dies_after.iter().enumerate() {
            if death.region.as_ref().is_some_and(|other| other != region) {
                continue;
            }
            if let (Some(value), Some(place)) = (value(&death.value), place(&death.last)) {
                self.taken.borrow_mut().insert(number);
                found.push((death.value.as_str(), value, place));
            }
        }
        found
    }

    /// Returns a death that no graph has taken, because none has both values.
    pub(super) fn left(&self) -> Option<(&str, &str)> {
        let taken = self.taken.borrow();
        let left = self.dies_after.iter().enumerate().find(|(number, _)| !taken.contains(number));
        left.map(|(_, Death { value, last, .. })| (value.as_str(), last.as_str()))
    }
}
