//! Signals to processes outside of the run, which a script must not end: launchers call `pkill -f train.py` before they start.

use std::fs;

use libc::c_long;

use super::caller::Caller;
use super::descendants::{Known, known, members};
use super::filter::Rule;

/// Flag of `pidfd_send_signal`: the whole process group.
const TO_THE_GROUP: u64 = 4;

/// Returns the calls that send signals, and the one that lowers another process's limits, by which it ends too.
pub(super) fn rules() -> Vec<(c_long, Rule)> {
    let calls = [
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_pidfd_send_signal,
    ];
    let calls = calls.into_iter().map(|number| (number, Rule::Ask));
    calls.chain([(libc::SYS_prlimit64, Rule::AskIfGiven(2))]).collect()
}

/// Returns what a call would reach outside of the run; `None` if it reaches nothing there.
pub(super) fn aim(caller: Caller, number: c_long, given: &[u64; 6]) -> Option<String> {
    let (whom, signal) = match number {
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_rt_sigqueueinfo => (given[0] as i32, given[1]),
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => (given[1] as i32, given[2]),
        libc::SYS_pidfd_send_signal => {
            let process = process_of(caller, given[0])?;
            let whom = if given[3] & TO_THE_GROUP == 0 { process } else { -group_of(process)? };
            (whom, given[1])
        }
        // 0 is the caller itself.
        libc::SYS_prlimit64 if given[0] as i32 > 0 => {
            return is_outside(given[0] as i32).then(|| format!("limits of {}", named(given[0] as i32)));
        }
        _ => return None,
    };
    // Signal 0 asks whether there is such a process.
    if signal == 0 {
        return None;
    }
    let outside = match whom {
        process @ 1.. => is_outside(process).then(|| named(process)),
        -1 => Some("all processes".into()),
        0 => outside_of_the_run(group_of(caller.thread() as i32)?),
        group => outside_of_the_run(group.checked_neg()?),
    };
    outside.map(|outside| format!("signal {signal} to {outside}"))
}

/// True if a process runs that is not of this run. One that has ended gets no signal.
fn is_outside(process: i32) -> bool {
    matches!(known(process), Known::Outside | Known::Lost)
}

/// Names a group if one of its processes is not of this run.
fn outside_of_the_run(group: i32) -> Option<String> {
    members(group).into_iter().find(|process| is_outside(*process)).map(named)
}

/// Returns the calls that make groups of processes.
pub(super) fn makes_groups() -> [(c_long, Rule); 2] {
    [(libc::SYS_setsid, Rule::Ask), (libc::SYS_setpgid, Rule::Ask)]
}

/// Returns the group that a call makes, or joins.
pub(super) fn group(caller: Caller, number: c_long, given: &[u64; 6]) -> Option<i32> {
    let own = || caller.process();
    match number {
        libc::SYS_setsid => own(),
        libc::SYS_setpgid => match (given[1] as i32, given[0] as i32) {
            (0, 0) => own(),
            (0, process) => Some(process),
            (group, _) => Some(group),
        },
        _ => None,
    }
}

fn named(process: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    format!("process {process} ({})", name.trim_end())
}

fn group_of(process: i32) -> Option<i32> {
    super::descendants::stat_of(process).map(|stat| stat.group)
}

/// Returns the process of a descriptor: of one for a process, or of a folder in `/proc`.
fn process_of(caller: Caller, descriptor: u64) -> Option<i32> {
    caller.process_of(descriptor).or_else(|| {
        let link = fs::read_link(format!("/proc/{}/fd/{}", caller.thread(), descriptor as i32)).ok()?;
        link.strip_prefix("/proc").ok()?.iter().next()?.to_str()?.parse().ok()
    })
}
