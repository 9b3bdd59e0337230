//! Environment variables of the script.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::folder::Folder;
use super::request::Request;

/// Returns the variables, each with its value. `docs/rehearsal-library.md` describes those that the library reads.
pub(super) fn environment(request: &Request, folder: &Folder) -> Vec<(&'static str, OsString)> {
    let card = &request.card;
    let (major, minor) = card.capability;
    let number = |number: u64| OsString::from(number.to_string());
    let multiprocessors = card.multiprocessors.map(|count| number(count.into())).unwrap_or_default();
    let asked = request.environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let path = asked.or_else(|| std::env::var_os("PATH"));
    let mut variables = vec![
        ("VRAMLAB_REHEARSAL_NAME", OsString::from(&card.name)),
        ("VRAMLAB_REHEARSAL_MEMORY", number(card.total_bytes)),
        ("VRAMLAB_REHEARSAL_CONTEXT", number(card.context_bytes)),
        ("VRAMLAB_REHEARSAL_CAPABILITY", format!("{major}.{minor}").into()),
        ("VRAMLAB_REHEARSAL_MULTIPROCESSORS", multiprocessors),
        ("VRAMLAB_REHEARSAL_CARDS", number(request.cards as u64)),
        ("VRAMLAB_REHEARSAL_LATE_EVENTS", number(request.late_events.into())),
        ("VRAMLAB_REHEARSAL_CUDNN", if request.asks_cudnn { "ask" } else { "none" }.into()),
        ("VRAMLAB_REHEARSAL_SHARED", folder.shared(0).into()),
        ("VRAMLAB_REHEARSAL_RANKS", folder.meeting().into()),
        ("VRAMLAB_REHEARSAL_LOG", folder.log().into()),
        ("VRAMLAB_REHEARSAL_OUTPUT", output(folder)),
        ("LD_PRELOAD", before(folder.library(), "LD_PRELOAD")),
        ("LD_LIBRARY_PATH", before(folder.path().into(), "LD_LIBRARY_PATH")),
        ("TRITON_LIBCUDA_PATH", folder.path().into()),
        ("PATH", before_value(folder.programs(), path)),
        ("PYTHONPATH", before(folder.python(), "PYTHONPATH")),
    ];
    variables.extend(LOGGERS.iter().map(|(name, value)| (*name, OsString::from(value))));
    variables
}

/// Settings that keep loggers from sending anything. Wrappers in `boot/withhold.py` of `rehearsal/python` do so even if the script changes these settings.
const LOGGERS: [(&str, &str); 4] =
    [("WANDB_MODE", "disabled"), ("COMET_MODE", "disabled"), ("NEPTUNE_MODE", "debug"), ("CLEARML_OFFLINE_MODE", "1")];

/// Returns what standard error is, to which script and progress go, and the file that says whether it ends within a line.
fn output(folder: &Folder) -> OsString {
    let Ok(about) = rustix::fs::fstat(rustix::stdio::stderr()) else { return OsString::new() };
    let mut value = OsString::from(format!("{}:{}:", about.st_dev, about.st_ino));
    value.push(folder.last_written());
    value
}

/// Puts a path before the current value of a variable, separated by a colon.
fn before(path: PathBuf, name: &str) -> OsString {
    before_value(path, std::env::var_os(name))
}

/// Puts a path before a value, separated by a colon.
fn before_value(path: PathBuf, held: Option<OsString>) -> OsString {
    let mut value = path.into_os_string();
    if let Some(held) = held.filter(|held| !held.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(held);
    }
    value
}
