//! The processes of a run: all that descend from the command, also those that left its group.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The signal that asks a process for its answer and its end: one that no framework uses.
pub(super) const ASK: i32 = 40;

/// How long an answer may take: a snapshot of a million events is written.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// How long an end may take.
const END_TIME: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Processes whose parent ends become children of this one: none is lost.
pub(super) fn adopt_orphans() {
    // Where the system refuses, only those that are still related are found.
    let _unrelated = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// All descendants of this process that `wanted` are, by parent: their numbers, parents first. Those that have ended
/// and wait for their parent are left out.
fn descendants() -> Vec<i32> {
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

/// The parent of a process that has not ended.
fn parent_of_running(pid: i32) -> Option<i32> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name, in brackets, may hold anything.
    let (_, after) = text.rsplit_once(") ")?;
    let mut words = after.split(' ');
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}

/// Those of a run: whatever descends from this process and was not there before.
pub(super) struct Processes {
    before: Vec<i32>,
}

impl Processes {
    /// Before the command is started.
    pub(super) fn before() -> Self {
        Self { before: descendants() }
    }

    fn running(&self) -> Vec<i32> {
        descendants().into_iter().filter(|pid| !self.before.contains(pid)).collect()
    }

    /// Ends all of them; those that `answers` says can answer are asked first. `reap` is called meanwhile.
    pub(super) fn end(&self, answers: impl Fn(i32) -> bool, reap: &mut dyn FnMut()) {
        // SAFETY: the C library keeps the numbers below 40 for itself at most up to 35 (`SIGRTMIN`), and nothing else
        // is done with this signal here than sending it.
        let ask = unsafe { Signal::from_raw_unchecked(ASK) };
        self.send(ask, &answers);
        self.wait(ANSWER_TIME, &answers, reap);
        self.send(Signal::TERM, &|_| true);
        self.wait(END_TIME, &|_| true, reap);
        self.send(Signal::KILL, &|_| true);
        self.wait(END_TIME, &|_| true, reap);
    }

    fn send(&self, signal: Signal, wanted: &dyn Fn(i32) -> bool) {
        for pid in self.running().into_iter().filter(|pid| wanted(*pid)).filter_map(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ended = kill_process(pid, signal);
        }
    }

    fn wait(&self, most: Duration, wanted: &dyn Fn(i32) -> bool, reap: &mut dyn FnMut()) {
        let start = Instant::now();
        while start.elapsed() < most && self.running().into_iter().any(wanted) {
            reap();
            std::thread::sleep(PAUSE);
        }
    }
}
