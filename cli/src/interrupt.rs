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
            std::process::exit(crate::exit::Code::Interrupted as i32);
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
