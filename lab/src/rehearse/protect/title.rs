//! The keeper's name, which differs from that of its program, and commands that end with their keeper.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The name that `ps` and `killall` see. The system keeps 15 characters.
const NAME: &std::ffi::CStr = c"rehearsal-keep";
/// The command line that `ps` and `pkill -f` see.
const LINE: &str = "rehearsal-keep: ends the script when its rehearsal ends";
/// Places of `arg_start` and `arg_end` in `/proc/self/stat` after the name in brackets (proc_pid_stat(5): 48 and 49, the first behind the name is 3).
const ARGUMENTS: [usize; 2] = [45, 46];

/// Replaces this process's name and command line. To be called in a process that has been forked and runs no other program.
pub(super) fn replace() {
    // SAFETY: the name ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
    let Some([start, end]) = arguments() else { return };
    let room = end.saturating_sub(start);
    if start == 0 || room < 2 {
        return;
    }
    // SAFETY: the system gave these bytes to this process for its arguments, writable and never unmapped. Arguments that the standard library
    // reads there later still end with a zero, and no other thread runs.
    let bytes = unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(start), room) };
    bytes.fill(0);
    let (line, length) = (LINE.as_bytes(), LINE.len().min(room - 1));
    bytes[..length].copy_from_slice(&line[..length]);
}

/// Returns where the command line begins and ends.
fn arguments() -> Option<[usize; 2]> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let [start, end] = ARGUMENTS.map(|at| fields.get(at).and_then(|field| field.parse().ok()));
    Some([start?, end?])
}

/// Lets the system kill a command once the thread that starts it ends, as when its process is killed.
pub(super) fn end_with_this_thread(command: &mut Command) {
    let keeper = rustix::process::getpid();
    // SAFETY: it makes two system calls, which is all that a process may do between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // It may have ended before.
            if rustix::process::getppid() == Some(keeper) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_where_the_system_says() {
        let [start, end] = arguments().unwrap();
        let line = std::fs::read("/proc/self/cmdline").unwrap();
        assert_eq!(end - start, line.len());
        // SAFETY: the bytes of the arguments are always there.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(start), line.len()) };
        assert_eq!(bytes, line);
    }
}
