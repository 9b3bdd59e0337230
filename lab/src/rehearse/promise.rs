//! What an answer says of the user's files: how they were protected, and whether that held.

use std::path::Path;

use lab_base::figures::counted;
use lab_results::RehearsedProtection;

use super::changed::Changed;
use super::protect::{Keeper, Way};

/// Describes the protection of a run.
pub(super) fn protection(keeper: Option<&Keeper>, changed: &Changed) -> RehearsedProtection {
    let way = keeper.map_or(Way::Library, Keeper::way);
    let mut lacks = keeper.map(|keeper| [keeper.refused(), keeper.lacks()].concat()).unwrap_or_default();
    if changed.in_part {
        lacks.push(
            "there was no time to compare all files of the working folder: not all that changed may be listed".into(),
        );
    }
    RehearsedProtection { way: way.name().into(), lacks }
}

/// Names what changed, relative to the working folder where it lies there.
pub(super) fn names(changed: &Changed, working: &Path) -> Vec<String> {
    let name = |(path, what): (&std::path::PathBuf, &&str)| {
        let shown = match path.strip_prefix(working) {
            Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
            Ok(rest) => rest,
            Err(_) => path,
        };
        let by = changed.by_others.get(path).map_or(String::new(), |name| format!(", open in {name}"));
        format!("{} ({what}{by})", shown.display())
    };
    changed.paths.iter().map(name).collect()
}

/// Returns a sentence on what the protection did not hold; `None` if nothing changed that nobody else is known to have written.
pub(super) fn problem(changed: &Changed) -> Option<String> {
    let paths = || counted(changed.paths.len() as u64 + changed.beyond, "path");
    changed.is_unexplained().then(|| {
        format!("{} of yours changed while the script ran, by it or by another program (see `changed`)", paths())
    })
}

/// Returns the warning before and after a run whose files are not protected from everything; `None` if they are.
pub(super) fn warning(way: Way) -> Option<&'static str> {
    match way {
        Way::Namespace | Way::Filter => None,
        Way::Landlock => Some(IN_PART),
        Way::Library => Some(UNPROTECTED),
    }
}

const IN_PART: &str = "this system allows neither a namespace nor a filter for the run. Landlock refuses most changes, but programs that \
     the script starts without the variable LD_PRELOAD, and those that call the system without the C library, change modes, owners, times and \
     attributes for real, and what was refused is not listed";

const UNPROTECTED: &str = "this system allows no namespace for the run: programs that the script starts without the \
     variable LD_PRELOAD, and those that call the system without the C library, write for real";
