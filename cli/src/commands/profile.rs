//! Memory profiles of runs in files of earlier versions.

use lab::run::DEFAULT_PROFILE;

/// Default of runs on a device until 2026: files of that time without a profile mean it.
pub(super) const FORMER_DEFAULT: &str = "native";

/// Returns a remark that a file's profile is in force because no flag named one; `None` if it is the default anyway.
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
