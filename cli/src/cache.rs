//! The folder of what this program keeps for later commands.

use std::path::PathBuf;

use lab::python::of_process;

/// Returns the folder, which need not exist: `vramlab` in `XDG_CACHE_HOME`, else in `~/.cache`.
pub(crate) fn folder() -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(of_process("HOME").filter(|home| !home.is_empty())?).join(".cache"));
    let named = of_process("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    Some(named.or_else(usual)?.join("vramlab"))
}
