//! The part of many runs that a result is, if several machines divided them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The part of many runs that a result is: part I of N has the runs I, I + N, I + 2 N … of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Number of the part, from 1.
    pub index: usize,
    /// Number of parts.
    pub count: usize,
    /// The request that all parts share: flags, or the command, and the program's version.
    pub asked: Map<String, Value>,
    /// Every run of the whole, in order, by its values or its name.
    pub whole: Vec<String>,
}
