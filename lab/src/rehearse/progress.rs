//! Progress of a running rehearsal.

use std::ops::ControlFlow;

/// Is called with the progress, and may end a run.
pub type Watch<'a> = dyn FnMut(Option<Progress>) -> ControlFlow<()> + 'a;

/// Progress of a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The script has ended within a line of its output.
    LineLeft,
    /// The first run compiled something; a second run with warm caches follows, and gives the result.
    Again,
    /// The user's files are not protected from everything here. The script starts next.
    Unprotected {
        /// What can write for real.
        warning: &'static str,
    },
    /// The script uses several streams; it runs again with work that is done as late as possible.
    Late,
    /// Memory ran out; the script runs again on a card with enough memory.
    Enough,
    /// It does not fit; the script runs again with a change.
    Change {
        /// The change in words.
        words: String,
    },
    /// The script runs with these values.
    Point {
        /// Names and values.
        values: Vec<(String, String)>,
    },
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
