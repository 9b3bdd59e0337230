//! The memory profile of runs that files of earlier versions say.

use lab::run::DEFAULT_PROFILE;

/// The default of runs on a device until 2026: files of that time that name no profile mean it.
pub(super) const FORMER_DEFAULT: &str = "native";

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
