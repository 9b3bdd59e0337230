//! All processes that descend from this one.

use std::collections::BTreeMap;
use std::fs;

/// Returns the process ids of all descendants of this process, parents first. Leaves out those that have ended and wait for their
/// parent.
pub(in crate::rehearse) fn descendants() -> Vec<i32> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some(parent) = parent_of_running(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![own];
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        found.extend(children.remove(parent).unwrap_or_default());
        at += 1;
    }
    found.split_off(1)
}

/// True if a process, or a thread, descends from this one.
pub(super) fn is_descendant(pid: i32) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut at = pid;
    while let Some(parent) = parent_of_running(at).filter(|parent| *parent > 0) {
        if parent == own {
            return true;
        }
        at = parent;
    }
    false
}

/// Returns the parent of a process; `None` if the process has ended.
fn parent_of_running(pid: i32) -> Option<i32> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name, in brackets, may contain any character.
    let (_, after) = text.rsplit_once(") ")?;
    let mut words = after.split(' ');
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}
