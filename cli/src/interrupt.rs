//! Ctrl-C: the first press asks the program to stop, the second stops it at once.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static ASKED: AtomicBool = AtomicBool::new(false);
/// True while Ctrl-C is the usual way to leave a command: then no message is printed.
static SILENT: AtomicBool = AtomicBool::new(false);
/// What the first press is answered with, if not that the step ends.
static ANSWER: OnceLock<&str> = OnceLock::new();
/// What is done before a second press ends the process.
static BEFORE_THE_END: OnceLock<fn()> = OnceLock::new();

/// Makes a limit on the size of files an error of the write that meets it, with a sentence and a code, instead of a signal that ends the process.
#[cfg(unix)]
pub(crate) fn file_limits_are_errors() {
    extern "C" fn go_on(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = go_on;
    // SAFETY: the handler does nothing, and stays valid while the program runs. Programs that this one starts do not inherit it.
    unsafe {
        libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t);
    }
}

/// Listens for Ctrl-C, and for the signals that ask a process to end. Where that is impossible, they end the process as usual.
pub(crate) fn install() {
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, SeqCst) {
            if let Some(restore) = BEFORE_THE_END.get() {
                restore();
            }
            std::process::exit(i32::from(crate::exit::Code::Interrupted.number()));
        }
        if !SILENT.load(SeqCst) {
            // On a line of its own: the current line may hold a progress bar, or the terminal's `^C`.
            let answer = ANSWER.get().copied().unwrap_or("stopping after this step");
            let _ = writeln!(std::io::stderr(), "\n{answer}; Ctrl-C again to stop now");
        }
    });
}

/// Sets what the first press is answered with; the first that is set stays.
pub(crate) fn answer(text: &'static str) {
    let _ = ANSWER.set(text);
}

/// Turns off the message.
pub(crate) fn silence() {
    SILENT.store(true, SeqCst);
}

/// Sets what is done before a second press ends the process; the first that is set stays.
#[cfg(feature = "view")]
pub(crate) fn before_the_end(restore: fn()) {
    let _ = BEFORE_THE_END.set(restore);
}

/// True if a stop was requested.
pub(crate) fn asked() -> bool {
    ASKED.load(SeqCst)
}

/// Returns `Break` if a stop was requested, for callbacks that can end a run.
pub(crate) fn flow() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// True while the key for a snapshot was pressed and nobody has asked yet.
#[cfg(unix)]
static KEY: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-\ a request for a snapshot instead of this program's end.
#[cfg(unix)]
pub(crate) fn listen_for_the_key() {
    extern "C" fn pressed(_signal: libc::c_int) {
        KEY.store(true, SeqCst);
    }
    let handler: extern "C" fn(libc::c_int) = pressed;
    // SAFETY: the handler only stores into an atomic, and stays valid while the program runs.
    unsafe {
        libc::signal(libc::SIGQUIT, handler as libc::sighandler_t);
    }
}

/// Keeps the key from a command that is to be started: the terminal sends it to that, too, and Python ends by it.
#[cfg(unix)]
pub(crate) fn keeps_the_key(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only `signal` is called, which may be called there.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGQUIT, libc::SIG_IGN);
            Ok(())
        });
    }
}

/// True once after the key was pressed.
#[cfg(unix)]
pub(crate) fn key_was_pressed() -> bool {
    KEY.swap(false, SeqCst)
}

/// Asks a process that this one started to end.
#[cfg(unix)]
pub(crate) fn end_process(pid: u32) {
    // SAFETY: plain values; the process was not waited for yet, so that the number is still its own.
    unsafe {
        libc::kill(pid as libc::pid_t, libc::SIGTERM);
    }
}

#[cfg(not(unix))]
pub(crate) fn listen_for_the_key() {}

#[cfg(not(unix))]
pub(crate) fn keeps_the_key(_command: &mut std::process::Command) {}

#[cfg(not(unix))]
pub(crate) fn key_was_pressed() -> bool {
    false
}

#[cfg(not(unix))]
pub(crate) fn end_process(_pid: u32) {}
