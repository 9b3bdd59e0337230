//! A module, and its operators.

use serde::{Deserialize, Serialize};

/// A module. Figures include the modules inside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleResult {
    /// Path, as in `named_modules()`.
    pub path: String,
    /// Bytes of its parameters.
    pub parameter_bytes: u64,
    /// Bytes of its other tensors.
    pub buffer_bytes: u64,
    /// Bytes that its operators were the first to save for backward.
    pub saved_bytes: u64,
    /// Sizes of the last result computed in it that has a gradient; null if there is none.
    pub output: Option<Vec<usize>>,
    /// Type of that result.
    pub output_dtype: Option<String>,
    /// Its own operators that have a gradient, without those of modules inside it.
    pub operators: Vec<OperatorResult>,
}

/// An operator in a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorResult {
    /// Node of the graph, as `grad_fn` names it: `AddmmBackward0`.
    pub name: String,
    /// File and line of the program, if the network's file has them.
    pub line: Option<String>,
    /// How often it ran.
    pub times: u64,
    /// Bytes that it was the first to save.
    pub saved_bytes: u64,
}
