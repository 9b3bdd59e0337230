//! What a loop does between its steps.

use lab_base::error::{Error, Result};
use serde::Serialize;

/// An evaluation after every few steps: some batches under `torch.no_grad()` and `model.eval()`, in a function of its own.
///
/// ```python
/// def evaluate():
///     model.eval()
///     with torch.no_grad():
///         for _ in range(batches):
///             x = inputs(); y = targets(); out = model(x); loss = criterion(out, y); total += loss.item()
///     model.train()
/// ```
///
/// The names of the loop keep their values meanwhile; those of the function end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    /// Steps from one evaluation to the next.
    pub every: usize,
    /// Examples of each batch.
    pub batch: usize,
    /// Number of batches.
    pub batches: usize,
    /// True if the results of all batches live until the evaluation ends.
    pub keeps_results: bool,
}

impl Evaluation {
    /// # Errors
    /// [`Error::Usage`] for an evaluation of nothing.
    pub(super) fn check(&self) -> Result<()> {
        let sizes = [("eval-every", self.every), ("eval-batch", self.batch), ("eval-steps", self.batches)];
        match sizes.into_iter().find(|(_, size)| *size == 0) {
            Some((field, _)) => Err(Error::usage(field, "must be at least 1")),
            None => Ok(()),
        }
    }
}
