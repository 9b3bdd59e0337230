//! Places in the script's files, as they are shown.

/// Returns the folder in which the command was started; empty if unknown.
pub(super) fn working_folder() -> String {
    std::env::current_dir().ok().and_then(|folder| folder.to_str().map(String::from)).unwrap_or_default()
}

/// Returns a place relative to `folder` if it lies there, otherwise unchanged.
pub(super) fn within(place: &str, folder: &str) -> String {
    let inside = (!folder.is_empty()).then(|| place.strip_prefix(folder)?.strip_prefix('/')).flatten();
    inside.unwrap_or(place).into()
}
