//! Processes of a run: all descendants of the command, also those that left its process group.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::protect::descendants;

/// Signal that asks a process to write its answer and end. No framework uses it.
pub(super) const ASK: i32 = 40;

/// Maximum time for an answer, which includes writing a snapshot of a million events.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Maximum wait for processes to end after a signal.
const END_TIME: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Makes this process the parent of descendants whose own parent ends, so that none is lost.
pub(super) fn adopt_orphans() {
    // If the system refuses, orphans are not found.
    let _unrelated = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Processes of a run: the descendants of this process that were not there before.
pub(super) struct Processes {
    before: Vec<i32>,
}

impl Processes {
    /// Notes the present descendants. To be called before the command is started.
    pub(super) fn before() -> Self {
        Self { before: descendants() }
    }

    /// Leaves out one more process, which is none of the run's.
    pub(super) fn without(mut self, pid: i32) -> Self {
        self.before.push(pid);
        self
    }

    fn running(&self) -> Vec<i32> {
        descendants().into_iter().filter(|pid| !self.before.contains(pid)).collect()
    }

    /// Ends all processes of the run. Processes for which `answers` is true are first asked for an answer. Calls `reap` while it waits.
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
            // The signal fails if the process has ended meanwhile.
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
