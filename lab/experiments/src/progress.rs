//! Progress of an experiment, counted in pieces, and stops between pieces.

use lab_base::error::{Error, Result};

use super::Setup;

/// Counts pieces of work.
pub(super) struct Progress<'a> {
    setup: &'a Setup<'a>,
    done: usize,
    pieces: usize,
}

impl<'a> Progress<'a> {
    /// Starts a count of `pieces` pieces.
    pub(crate) fn new(setup: &'a Setup<'a>, pieces: usize) -> Self {
        Self { setup, done: 0, pieces: pieces.max(1) }
    }

    /// Reports the next piece.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the experiment is to end here.
    pub(super) fn next(&mut self, what: &str) -> Result<()> {
        let share = self.done as f64 / self.pieces as f64;
        self.done = (self.done + 1).min(self.pieces);
        if (self.setup.progress)(what, share).is_break() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
