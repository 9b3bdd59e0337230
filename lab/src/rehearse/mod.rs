//! Rehearsals: somebody's own script under the real PyTorch, on a card that is not there (`docs/rehearse.md`).
//!
//! ```text
//! request ─► library, folder ─► environment ─► run: start, follow, end ─► answers, log ─► collect ─► results::Rehearsal
//!                  boot/*.py: what each Python of the run does
//! ```
//!
//! What the script's processes write is read as any file from outside: with bounds, and executed by nobody.

mod answers;
mod categories;
mod collect;
mod environment;
mod folder;
mod library;
mod log;
mod outputs;
mod processes;
mod progress;
mod request;
mod run;
mod verdict;

pub use collect::Rehearsed;
pub use progress::Progress;
pub use request::{Request, RequestedCard, Stop, Use};

use std::ops::ControlFlow;

use crate::error::Result;

/// Runs a script and says what it took. `watch` is told how far it is, and may end it: what there is until then is the
/// answer.
///
/// # Errors
/// A request that cannot be kept, by name; a library, a folder or a command that cannot be used.
pub fn rehearse(request: &Request, watch: &mut dyn FnMut(Option<Progress>) -> ControlFlow<()>) -> Result<Rehearsed> {
    request.check()?;
    let library = library::find()?;
    let mut folder = folder::Folder::make(&library, request)?;
    let mut followed = run::run(request, &folder, watch)?;
    let mut runs = 1;
    if followed.is_complete() && answers::read(&folder).iter().any(|answer| answer.compiled.new > 0) {
        let again = folder::Folder::make(&library, request)?;
        let broken = watch(Some(Progress::Again)).is_break();
        if !broken {
            followed = run::run(request, &again, watch)?;
            folder = again;
            runs = 2;
        }
    }
    collect::collect(request, folder, followed, runs)
}
