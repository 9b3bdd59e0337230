//! What a keeper tells this program: lines of JSON.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    /// The protection holds, and the commands are started next.
    Ready {
        /// True if the upper layers are reached through the keeper's root alone.
        inside: bool,
        /// Folders with their layers, by number.
        trees: Vec<std::path::PathBuf>,
        /// Why something of the protection is missing.
        lacks: Vec<String>,
    },
    /// This way to protect files does not work here.
    Refused(String),
    /// A command was started.
    Started(usize),
    /// A command could not be started.
    NotStarted(usize, String),
    /// A command ended with this status, as the system gives it.
    Ended(usize, i32),
    /// A process tried to change this path, and may not.
    Vetoed(String),
    /// A process connected to an address beyond this machine.
    Contacted(String),
}
