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
        found.interrupted |= more.interrupted;
    }
    // Of several values only those that fit surely can get another answer by it.
    let may_decide = request.late_again && (request.needs || found.result.fits_surely() == Some(true));
    if found.result.asks_for_late_events() && !request.late_events && may_decide && !found.interrupted {
        add_late(&mut found, request, &library, watch)?;
    }
    found.result.add_figures();
    // The longer run shows more than the one that ran out of memory. A run that failed or was interrupted proposes nothing.
    if found.result.fits_so_far().is_some() {
        found.result.what_if = settings::proposed(with_enough.as_ref().unwrap_or(&found), &request.card);
    }
    found.with_enough = with_enough.map(Box::new);
    Ok(found)
}

/// Adds what the script reserves if a card's events are as late as they can be.
fn add_late(found: &mut Rehearsed, request: &Request, library: &Path, watch: &mut Watch) -> Result<()> {
    if watch(Some(Progress::Late)).is_break() {
        return Ok(());
    }
    let late = once(&Request { late_events: true, ..enough::request(request) }, library, watch)?;
    found.interrupted |= late.interrupted;
    if late.result.fits_so_far() == Some(true) {
        let reserved = late.result.ranks.iter().map(|rank| rank.peak_reserved).max();
        found.result.add_late_events(reserved.unwrap_or_default());
    }
    Ok(())
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
