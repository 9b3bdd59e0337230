//! What is told while a script runs.

/// How far a rehearsal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// After so many steps of an optimizer the most that PyTorch had allocated on a card, in bytes.
    Step {
        /// Steps that are done.
        steps: u64,
        /// Bytes.
        peak_allocated_bytes: u64,
    },
    /// The first run compiled; the second, with what the first left in caches, counts.
    Again,
    /// Memory ran out; the script is run again on a card with memory enough.
    Enough,
}
