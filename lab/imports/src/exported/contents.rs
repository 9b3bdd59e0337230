//! Contents of a file that a device needs: the program, the meaning of its inputs, and the positions of the weights' values.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use memcore::DType;

use super::adapted;
use super::evaluation::Evaluation;
use super::program::Program;
use super::signature::Signature;

/// Contents of a `.pt2` file, from which a network is built on a device.
pub(super) struct Contents {
    pub path: PathBuf,
    /// The file's name, for messages.
    pub file: String,
    pub program: Arc<Program>,
    pub signature: Signature,
    /// The graph under `model.eval()`, or why it cannot be run; `None` if the file has none beside the training's.
    pub evaluation: Option<Result<Evaluation, String>>,
    /// The type of the trained parameters, of most of their elements where there are several.
    pub dtype: DType,
    /// Another type of trained parameters, which they keep whatever the run's is.
    pub other_type: Option<DType>,
    /// Modules without parameters, each with the module before which `model.to` moves it.
    pub moved_before: Vec<(String, String)>,
    /// The linear layers, found when they are first asked for ([`linear_layers`](Self::linear_layers)).
    pub layers: OnceLock<HashMap<usize, usize>>,
    /// True if the file stands for the user's program, whose recurrent modules put their weights into one buffer (`flat_weights.rs`).
    pub flattens: bool,
}

impl Contents {
    /// The last tensor of each linear layer, with its weight ([`adapted::linear_layers`]).
    pub(super) fn linear_layers(&self) -> &HashMap<usize, usize> {
        self.layers.get_or_init(|| adapted::linear_layers(&self.program, &self.signature))
    }

    /// Returns the type that a tensor of the file has in a run. A tensor of the parameters' type takes the run's type, as the parameters do; any
    /// other tensor keeps its own.
    pub(super) fn in_run(&self, of_file: DType, of_run: DType) -> DType {
        if of_file == self.dtype { of_run } else { of_file }
    }
}
