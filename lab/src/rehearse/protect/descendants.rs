//! All processes that descend from this one.

use std::collections::BTreeMap;
use std::fs;

/// Number of looks at a process whose parents end meanwhile.
const LOOKS: usize = 5;

/// What the system says of a process or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: i32,
    pub(super) group: i32,
    has_ended: bool,
}

/// Where a process belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It descends from this process.
    OfTheRun,
    /// It runs, and does not.
    Outside,
    /// It runs. Those from which it descends ended while they were looked at.
    Lost,
    /// There is none, or it has ended and waits for its parent.
    Ended,
}

/// Returns the process ids of all descendants of this process, parents first. Leaves out those that have ended and wait for their
/// parent.
pub(in crate::rehearse) fn descendants() -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in all() {
        if let Some(parent) = parent_of_running(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![own()];
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        found.extend(children.remove(parent).unwrap_or_default());
        at += 1;
    }
    found.split_off(1)
}

/// True if a process, or a thread, descends from this one.
pub(super) fn is_descendant(pid: i32) -> bool {
    known(pid) == Known::OfTheRun
}

/// Returns where a process, or a thread, belongs.
pub(super) fn known(pid: i32) -> Known {
    let found = (0..LOOKS).map(|_| look(pid)).find(|known| *known != Known::Lost);
    found.unwrap_or(Known::Lost)
}

fn look(pid: i32) -> Known {
    let Some(mut at) = parent_of_running(pid) else { return Known::Ended };
    while at != own() {
        match parent_of_running(at) {
            Some(parent) => at = parent,
            None if at == 0 => return Known::Outside,
            None => return Known::Lost,
        }
    }
    Known::OfTheRun
}

/// Returns the running processes of a group.
pub(super) fn members(group: i32) -> Vec<i32> {
    processes().filter(|(_, of)| *of == group).map(|(pid, _)| pid).collect()
}

/// Returns all running processes, each with its group.
pub(super) fn processes() -> impl Iterator<Item = (i32, i32)> {
    all().filter_map(|pid| stat_of(pid).filter(|stat| !stat.has_ended).map(|stat| (pid, stat.group)))
}

fn own() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

/// Returns the parent of a process; `None` if the process has ended.
fn parent_of_running(pid: i32) -> Option<i32> {
    stat_of(pid).filter(|stat| !stat.has_ended).map(|stat| stat.parent)
}

/// Returns what the system says of a process or a thread; `None` if there is none.
pub(super) fn stat_of(pid: i32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name, in brackets, may contain any character.
    let (_, after) = text.rsplit_once(") ")?;
    let mut words = after.split(' ');
    let has_ended = matches!(words.next()?, "Z" | "X");
    Some(Stat { parent: words.next()?.parse().ok()?, group: words.next()?.parse().ok()?, has_ended })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn children_are_told_from_others_and_from_those_that_have_ended() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!((known(pid), known(1), known(own())), (Known::OfTheRun, Known::Outside, Known::Outside));
        assert_eq!((members(pid), descendants().contains(&pid)), (vec![pid], true));
        child.kill().unwrap();
        while stat_of(pid).is_some_and(|stat| !stat.has_ended) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!((known(pid), members(pid)), (Known::Ended, Vec::new()), "it waits for its parent");
        child.wait().unwrap();
        assert_eq!(known(pid), Known::Ended);
    }
}
