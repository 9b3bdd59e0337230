//! Which part of many runs a result is, where several machines divided them among themselves.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Which part of many runs a result is: part I of N has the runs I, I + N, I + 2 N … of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Which part, from 1.
    pub index: usize,
    /// Of how many.
    pub count: usize,
    /// What every part was asked: flags, or the command, and the program's version.
    pub asked: Map<String, Value>,
    /// Every run of the whole, in order, by its values or its name.
    pub whole: Vec<String>,
}
