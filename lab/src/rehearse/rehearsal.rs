//! One rehearsal: the script's run, and those that it calls for.

use std::path::Path;

use lab_base::error::Result;

use super::collect::{Rehearsed, collect};
use super::progress::{Progress, Watch};
use super::request::Request;
use super::{answers, enough, folder, library, open, run, settings};

/// Runs a script and returns the memory that it took. `watch` is called with the progress and may end the run; the result then covers
/// what the script did until then. If memory runs out, the script runs once more on a card with enough memory, unless the request
/// forbids it.
///
/// # Errors
/// A request that cannot be fulfilled, by name; a library, a folder or a command that cannot be used.
pub fn rehearse(request: &Request, watch: &mut Watch) -> Result<Rehearsed> {
    request.check()?;
    let library = library::find()?;
    let mut found = once(request, &library, watch)?;
    let mut with_enough = None;
    if found.result.ran_out() && request.needs && !found.interrupted && !watch(Some(Progress::Enough)).is_break() {
        with_enough = Some(once(&enough::request(request), &library, watch)?);
    }
    if let Some(more) = &with_enough {
        enough::add(&mut found, more)?;
    }
    found.result.add_figures();
    // The longer run shows more than the one that ran out of memory. A run that failed or was interrupted proposes nothing.
    if found.result.fits_so_far().is_some() {
        found.result.what_if = settings::of(with_enough.as_ref().unwrap_or(&found), &request.card);
    }
    found.with_enough = with_enough.map(Box::new);
    Ok(found)
}

/// Runs the script. If it compiled something that no cache had, runs it again with warm caches and returns that run.
fn once(request: &Request, library: &Path, watch: &mut Watch) -> Result<Rehearsed> {
    let caches = open::Caches::find();
    let mut folder = folder::Folder::make(library, request)?;
    let mut ran = run::run(request, &folder, &caches, watch)?;
    let mut runs = 1;
    if ran.followed.is_complete() && answers::read(&folder).iter().any(|answer| answer.compiled.new > 0) {
        let again = folder::Folder::make(library, request)?;
        let broken = watch(Some(Progress::Again)).is_break();
        if !broken {
            ran = run::run(request, &again, &caches, watch)?;
            folder = again;
            runs = 2;
        }
    }
    collect(request, folder, &caches, ran, runs)
}
