//! No attack of a script or its children changes a file of the user's, whatever protects them here.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::kept::{State, differing, in_a_namespace, is_root, project, project_for, quiet, rehearse, state};
use crate::common::rehearsal::FOLDER;

/// Makes all attacks of a list with this command, below a folder. Checks that nothing changed there, and returns the answer and what was
/// printed; `None` where a way to protect files is asked for that does not work here.
fn unharmed(
    mut command: Command,
    attacks: &str,
    way: Option<&str>,
    root: &Path,
    outside: &Path,
) -> Option<(Value, String)> {
    if let Some(way) = way {
        command.env("VRAMLAB_REHEARSAL_PROTECTION", way);
    }
    let before: State = state(root);
    let attacks = Path::new(FOLDER).join(attacks);
    let words = ["python3", attacks.to_str().unwrap()];
    let (answer, text) = rehearse(command, &words, &outside.join("answer.json"));
    let works = way.map_or_else(|| in_a_namespace(&answer), |way| answer["protection"]["way"] == way);
    if !works {
        eprintln!("not tested: this system does not allow {way:?}: {}", answer["protection"]["lacks"]);
        return None;
    }
    assert_eq!(differing(&before, root), Vec::<PathBuf>::new(), "what existed is unchanged: {text}");
    assert_eq!(answer["changed"], serde_json::json!([]), "{text}");
    Some((answer, text))
}

#[test]
fn no_attack_changes_a_file_and_each_is_seen_by_the_script() {
    let Some((answer, text, _)) = attacked(None) else { return };
    assert_eq!(answer["script_exit"], 0, "{text}");
    let withheld = answer["withheld"].as_array().unwrap();
    for name in ["files/a_child_with_an_environment_of_its_own (removed)", "files/a_mapping", "tree (removed)"] {
        assert!(withheld.contains(&name.into()), "{name}: {withheld:?}");
    }
}

/// Makes all attacks of the first list under one way to protect files, or under the best that works. Returns the project, too.
fn attacked(way: Option<&str>) -> Option<(Value, String, PathBuf)> {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let project = project(root.path());
    let (answer, text) = unharmed(quiet(&project, &[]), "attacks.py", way, root.path(), outside.path())?;
    // What goes through the C library is seen by the script, and so is what its children do.
    for seen in ["a_child_with_an_environment_of_its_own", "a_mapping", "attributes_through_a_descriptor", "a_socket"] {
        assert!(!text.contains(&format!("'{seen}'")), "{seen}: {text}");
    }
    Some((answer, text, project))
}

#[test]
fn a_filter_refuses_what_the_library_does_not_see() {
    let Some((answer, text, project)) = attacked(Some("filter")) else { return };
    let refused = answer["refused"].as_array().unwrap();
    let raw = project.join("files/calls_of_the_system_without_the_c_library");
    assert!(refused.contains(&raw.to_str().unwrap().into()), "{refused:?} {text}");
}

#[test]
fn landlock_refuses_it_too_and_the_command_says_what_it_does_not_know() {
    let Some((answer, text, _)) = attacked(Some("landlock")) else { return };
    assert!(text.contains("'calls_of_the_system_without_the_c_library'"), "{text}");
    let warned = |text: &str| text.contains("Landlock refuses most changes") && text.contains("modes, owners, times");
    assert!(text.starts_with("warning: ") && warned(&text), "before it starts: {text}");
    assert!(warned(answer["problems"].as_array().unwrap().last().unwrap().as_str().unwrap()), "{answer}");
    assert_eq!(answer["inexact"], serde_json::json!([]), "it changes no size");
}

/// Makes all attacks of another list, as root or as another user, with descriptors open since before. Checks that nothing changed and that
/// nothing was reached outside, and returns the answer and what was printed; `None` where this way does not work.
fn attacked_further(attacks: &str, way: &str, user: Option<u32>) -> Option<(Value, String)> {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let project = project_for(root.path(), attacks);
    for file in ["written", "read"] {
        fs::write(project.join(file), "before").unwrap();
    }
    let mut command = Command::new("sh");
    let script = "exec 7<>written 8<. < read; exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_vramlab"), "rehearse", "--no-values"]);
    command.current_dir(&project).env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PARENT", std::process::id().to_string());
    let mut outsiders = Outsiders::start(&project, user);
    command.env("OUTSIDE", outsiders.names());
    if let Some(user) = user {
        for path in [root.path(), outside.path()] {
            Command::new("chown").arg("-R").arg(format!("{user}:{user}")).arg(path).status().unwrap();
        }
        chown(root.path(), Some(user), Some(user)).unwrap();
        command.uid(user).gid(user).env("HOME", "/nonexistent");
    }
    let found = unharmed(command, attacks, Some(way), root.path(), outside.path());
    if let Some((_, text)) = &found {
        assert!(!text.contains("HARM"), "{text}");
        assert_eq!(outsiders.ended(), 0, "{text}");
    }
    found
}

/// Processes outside of a run, which nothing in it must reach or end.
struct Outsiders(Vec<Child>);

impl Outsiders {
    /// Starts one of the user's; for root also one of nobody's, and one of root's without rights.
    fn start(folder: &Path, user: Option<u32>) -> Self {
        let kinds: &[&str] = if user.is_some() { &["user"] } else { &["user", "nobody", "without-rights"] };
        let start = |kind: &&str| {
            let mut command = Command::new("python3");
            command.arg(Path::new(FOLDER).join("outsider.py")).arg(kind).current_dir(folder).process_group(0);
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
            child.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
            child
        };
        Self(kinds.iter().map(start).collect())
    }

    fn names(&self) -> String {
        self.0.iter().map(|child| child.id().to_string()).collect::<Vec<_>>().join(",")
    }

    fn ended(&mut self) -> usize {
        self.0.iter_mut().filter_map(|child| child.try_wait().unwrap()).count()
    }
}

impl Drop for Outsiders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended = child.kill();
            child.wait().unwrap();
        }
    }
}

/// A user who is not root.
const NOBODY: u32 = 65534;

#[test]
fn no_further_attack_changes_a_file_in_a_namespace() {
    for user in [None, Some(NOBODY)].into_iter().filter(|user| user.is_none() || is_root()) {
        let Some((answer, text)) = attacked_further("more_attacks.py", "namespace", user) else { continue };
        assert_eq!(answer["script_exit"], 0, "{user:?}: {text}");
    }
}

#[test]
fn no_further_attack_changes_a_file_behind_a_filter() {
    for user in [None, Some(NOBODY)].into_iter().filter(|user| user.is_none() || is_root()) {
        let Some((answer, text)) = attacked_further("more_attacks.py", "filter", user) else { continue };
        let refused = answer["refused"].to_string();
        assert!(refused.contains("/mem"), "processes outside of the run: {refused} {text}");
        for seen in [
            "the_memory_of_a_process_outside",
            "what_is_open_since_before",
            "tools_that_write_in_place",
            "a_database_in_every_mode",
        ] {
            assert!(!text.contains(&format!("'{seen}'")), "{user:?} {seen}: {text}");
        }
    }
}

#[test]
fn no_attack_on_the_protection_changes_a_file_or_reaches_a_process_outside() {
    for (way, user) in [("namespace", None), ("namespace", Some(NOBODY)), ("filter", None), ("filter", Some(NOBODY))] {
        if user.is_some() && !is_root() {
            continue;
        }
        let Some((answer, text)) = attacked_further("system_attacks.py", way, user) else { continue };
        let refused = answer["refused"].to_string();
        assert!(refused.contains("signal 9 to process"), "{way} {user:?}: {refused} {text}");
        assert!(!text.contains("'signals_to_processes_outside'"), "its own processes end as before: {text}");
        if way == "namespace" {
            assert_eq!(answer["script_exit"], 0, "{user:?}: {text}");
        }
    }
}
