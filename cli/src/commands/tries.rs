//! Finds changes that make a run fit, or take less memory if nothing limits it.

use std::path::Path;

use lab::recipes::Recipe;
use lab::results::TIGHT;
use lab::run::{DryRunner, Figures, RunSpec, Session, TrySearch};
use lab::section::Tries;

use super::plan::dry_runner;
use crate::exit::Result;

/// Finds changes for a dry run; `None` where the answer is a plain yes.
pub(super) fn of_predicted(
    runner: &DryRunner<'_>,
    spec: &RunSpec,
    session: &Session,
    needs: &Figures,
) -> Result<Option<Tries>> {
    let search = TrySearch { runner, spec, session, command: "predict", instead: None };
    let Some(room) = needs.room else { return Ok(Some(search.that_save(needs)?)) };
    // What other parts of the answer found is left out: how far the search comes does not depend on them.
    let search = TrySearch { runner: &runner.afresh(), ..search };
    let left = room.reserved_bytes.map(|reserved| room.budget_bytes.saturating_sub(reserved));
    match left {
        Some(left) if left as f64 >= TIGHT * room.budget_bytes as f64 && !needs.is_in_doubt() => Ok(None),
        _ => Ok(Some(search.that_fit(room.budget_bytes)?)),
    }
}

/// Gives the changes of a recipe's run in the recipe's own keys, where it has keys for all that an entry changes.
///
/// # Errors
/// A recipe that cannot be read any more.
pub(super) fn in_keys(tries: &mut Tries, recipe: &Path, spec: &RunSpec) -> Result<()> {
    let Some(recipe) = Recipe::read(recipe)? else { return Ok(()) };
    let before = spec.repeated();
    for entry in &mut tries.entries {
        let changed = entry.fields.iter().filter(|(name, value)| before.get(*name) != Some(value));
        if let Some(keys) = recipe.keys_for(&changed.map(|(name, value)| (name.clone(), value.clone())).collect()) {
            entry.script = format!("{}: {keys}", recipe.trainer);
        }
    }
    Ok(())
}

/// Finds changes for a dry run that does not fit into its budget.
pub(super) fn that_fit(runner: DryRunner<'_>, spec: &RunSpec, budget_bytes: u64) -> Result<Tries> {
    let session = runner.session(spec)?;
    let search = TrySearch { runner: &runner, spec, session: &session, command: "predict", instead: None };
    Ok(search.that_fit(budget_bytes)?)
}

/// Finds changes for a run on a device with a limit below its needs; dry runs find what each changed form needs. `None` without a limit.
pub(super) fn of_trained(spec: &RunSpec, session: &Session) -> Result<Option<Tries>> {
    let Some(bytes) = session.target.budget_bytes().map_err(lab::Error::from)? else { return Ok(None) };
    let search = TrySearch { runner: &dry_runner(), spec, session, command: "train", instead: Some(bytes) };
    Ok(Some(search.that_fit(bytes)?))
}

/// Finds changes for a run of a lock file, a dry run or one on a device.
pub(super) fn of_locked(spec: &RunSpec, session: &Session) -> Result<Option<Tries>> {
    match session.target.budget_bytes().map_err(lab::Error::from)? {
        Some(bytes) if spec.is_on_paper() => Ok(Some(that_fit(dry_runner(), spec, bytes)?)),
        _ => of_trained(spec, session),
    }
}
