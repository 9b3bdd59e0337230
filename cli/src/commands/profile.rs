//! Which memory profile a run is counted by.

use memcore::Profile;
use memcore::profile::Convolution;

use super::environment;
use super::opening::Opening;
use crate::args::{DEFAULT_PROFILE, ProfileArgs};
use crate::exit::{Failure, Result};

/// The prefix of a backend whose own workspaces are counted.
const NATIVE: &str = "native:";

/// The default of runs on a device until 2026: files of that time that name no profile mean it.
pub(super) const FORMER_DEFAULT: &str = "native";

/// The device, with what operators take on it counted by the profile `like`, on a card with so many multiprocessors where that is known.
///
/// # Errors
/// An unknown profile; a backend's own workspaces on a device of another one.
pub(super) fn counted_by(
    opening: Opening,
    like: &str,
    args: &ProfileArgs,
    multiprocessors: Option<u16>,
) -> Result<Opening> {
    let opening = opening.profile(named(like, args, multiprocessors)?);
    match like.strip_prefix(NATIVE) {
        Some(backend) => opening.workspaces_of(backend),
        None => Ok(opening),
    }
}

fn named(like: &str, args: &ProfileArgs, multiprocessors: Option<u16>) -> Result<Profile> {
    let ours = like.strip_prefix(NATIVE).map(|_| Profile { name: like.into(), ..Profile::native() });
    let unknown = || match Profile::nearest(like) {
        Some(nearest) => Failure::usage(format!("--like: {nearest}")),
        None => Failure::usage(format!("--like: unknown profile {like:?}")),
    };
    let mut profile = ours.or_else(|| Profile::named(like)).ok_or_else(unknown)?;
    if let Some(workspace_bytes) = args.cudnn_workspace {
        profile.convolution = Convolution::Cudnn { workspace_bytes };
    }
    let profile = environment::applied(profile, &args.env)?;
    Ok(match multiprocessors {
        Some(count) => profile.on_card(count.into()),
        None => profile,
    })
}

/// Says that a file's profile is in force because no flag named one; nothing where it is the default anyway.
pub(super) fn taken_from(file: &str, recorded: Option<&str>) -> Option<String> {
    match recorded {
        Some(DEFAULT_PROFILE) => None,
        Some(like) => {
            Some(format!("note: {file} was made under --like {like}; so is this run, since --like is not given"))
        }
        None => Some(format!(
            "note: {file} names no memory profile; this run is under --like {FORMER_DEFAULT}, the default when it was written"
        )),
    }
}
