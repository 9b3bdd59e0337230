//! What a file holds that a device needs: the program, what its inputs are, and where values lie.

use std::path::PathBuf;
use std::sync::Arc;

use memcore::DType;

use super::program::Program;
use super::signature::Signature;

/// What a file holds.
pub(super) struct Contents {
    pub path: PathBuf,
    /// The file's name, for messages.
    pub file: String,
    pub program: Arc<Program>,
    pub signature: Signature,
    /// The type of the trained parameters.
    pub dtype: DType,
}

impl Contents {
    /// The type in which a run has a tensor of the file: what has the parameters' type goes with them.
    pub(super) fn in_run(&self, of_file: DType, of_run: DType) -> DType {
        if of_file == self.dtype { of_run } else { of_file }
    }
}
