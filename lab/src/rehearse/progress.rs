//! Progress of a running rehearsal.

/// Progress of a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No step was done so far.
    Before {
        /// What the script does.
        stage: Stage,
        /// Seconds since the command was started.
        seconds: u64,
    },
    /// Steps of an optimizer were done.
    Step {
        /// Number of steps done.
        steps: u64,
        /// Peak of the bytes that PyTorch has allocated on a card until then.
        peak_allocated_bytes: u64,
    },
    /// The first run compiled something; a second run with warm caches follows, and gives the result.
    Again,
    /// The user's files are not protected from everything here. The script starts next.
    Unprotected {
        /// What can write for real.
        warning: &'static str,
    },
    /// Memory ran out; the script runs again on a card with enough memory.
    Enough,
}

/// What a script does before its first step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The command starts.
    #[default]
    Starting,
    /// Python runs.
    Python,
    /// PyTorch is being imported.
    Importing,
    /// PyTorch was imported: the script makes its network and loads its data.
    Building,
}
