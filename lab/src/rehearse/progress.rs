//! Progress of a running rehearsal.

/// Progress of a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Steps of an optimizer were done.
    Step {
        /// Number of steps done.
        steps: u64,
        /// Peak of the bytes that PyTorch has allocated on a card until then.
        peak_allocated_bytes: u64,
    },
    /// The first run compiled something; a second run with warm caches follows, and gives the result.
    Again,
    /// Only the preloaded library can protect the user's files here. The script starts next.
    Unprotected,
    /// Memory ran out; the script runs again on a card with enough memory.
    Enough,
}
