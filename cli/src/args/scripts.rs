//! What is said beside a script: flags of the rehearsal among its own arguments, its interpreter, a flag that scripts cannot have.

use std::ffi::OsString;
use std::path::Path;

use lab::cards::Card;

use super::line::{Line, is_exactly_a_flag, values_of};
use super::tips;
use crate::exit::{Failure, Result};

#[cfg(target_os = "linux")]
use lab::rehearse::reads_arguments;

/// Nothing is rehearsed here.
#[cfg(not(target_os = "linux"))]
fn reads_arguments(_: &[OsString]) -> bool {
    true
}

/// Error of `--largest` beside a script, which is started so.
pub(super) fn largest_of(command: &[OsString], typed: &[OsString]) -> Failure {
    let shown: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let card =
        typed.windows(2).find(|pair| pair[0] == "--gpu").map_or("rtx4090".into(), |pair| pair[1].to_string_lossy());
    let (how, name, end) = match reads_arguments(command) {
        true => ("name the argument that does", "batch", " --batch-size {batch}"),
        false => ("let it read its batch from a variable, as in int(os.environ[\"BATCH\"])", "env:BATCH", ""),
    };
    Failure::usage(format!(
        "--largest: a script sets its batch itself, so {how}; vramlab tries 1, 8 and what follows from them: \
         vramlab predict --gpu {card} -L {name} 1,8 -- {}{end}",
        shown.join(" ")
    ))
}

/// Takes a card out of the words of a command, `python train.py --gpu rtx3070`: a script's own `--gpu` is a number or a flag.
pub(super) fn card_behind(words: &mut Vec<OsString>) -> Vec<OsString> {
    let is_card = |word: &OsString| word.to_str().is_some_and(|word| Card::named(word).is_some());
    let Some(at) = words.windows(2).position(|pair| pair[0] == "--gpu" && is_card(&pair[1])) else { return Vec::new() };
    words.drain(at..at + 2).collect()
}

/// Divides the words after a script into flags of a rehearsal and the script's own arguments.
///
/// # Errors
/// A word that is nearly a flag of the rehearsal: the script would get it, and the rehearsal go without.
pub(super) fn told_apart(line: &Line<'_>, words: Vec<OsString>) -> Result<(Vec<OsString>, Vec<OsString>)> {
    let Some(rehearse) = line.command("rehearse") else { return Ok((Vec::new(), words)) };
    let (mut flags, mut arguments) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let flag = word.to_str().filter(|word| word.starts_with('-') && word.len() > 1).map(String::from);
        // Only by its own name: a script may have --max_steps and --card of its own.
        let known = flag.as_deref().filter(|flag| is_exactly_a_flag(rehearse, flag));
        match (known.and_then(|flag| values_of(rehearse, flag)), flag) {
            (Some(values), _) => {
                flags.push(word);
                flags.extend(words.by_ref().take(values));
            }
            (None, Some(flag)) => {
                if let Some(near) = tips::nearly(rehearse, &flag) {
                    return Err(Failure::usage(format!(
                        "{flag}: vramlab has --{near}; if it is the script's own argument: vramlab predict -- python SCRIPT {flag} …"
                    )));
                }
                arguments.push(word);
            }
            (None, None) => arguments.push(word),
        }
    }
    Ok((flags, arguments))
}

/// Takes `--python FILE` out of words: the interpreter that a script is started with.
///
/// # Errors
/// The flag without a file.
pub(super) fn interpreter(words: &mut Vec<OsString>) -> Result<Option<OsString>> {
    let named = |word: &OsString| word.to_str().is_some_and(|word| word == "--python" || word.starts_with("--python="));
    let Some(at) = words.iter().position(named) else { return Ok(None) };
    let word = words.remove(at);
    let given = word.to_str().and_then(|word| word.strip_prefix("--python=")).map(OsString::from);
    let missing = || Failure::usage("--python needs the file of an interpreter: --python .venv/bin/python");
    given.or_else(|| (at < words.len()).then(|| words.remove(at))).map(Some).ok_or_else(missing)
}

/// The interpreter that a script without one is started with.
pub(super) fn python() -> OsString {
    let on_path = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    if on_path("python") { "python".into() } else { "python3".into() }
}

/// Returns a command that can be started: a script in its place gets an interpreter.
pub(super) fn startable(mut command: Vec<OsString>) -> Vec<OsString> {
    let is_script = command.first().is_some_and(|first| {
        let path = Path::new(first);
        path.extension().is_some_and(|ending| ending == "py") && path.is_file() && !is_executable(path)
    });
    if is_script {
        command.insert(0, python());
    }
    command
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    // Without a folder the name is looked up on PATH.
    path.components().count() > 1 && path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    false
}
