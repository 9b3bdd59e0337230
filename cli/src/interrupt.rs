//! Ctrl-C: the first press asks for an end, the second one ends.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static ASKED: AtomicBool = AtomicBool::new(false);
/// Whether it is the way to leave what runs: then nothing is said of it.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Listens for Ctrl-C, and for the signals that ask a process to end. Where that is impossible, they end the process as they always do.
pub(crate) fn install() {
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, SeqCst) {
            std::process::exit(crate::exit::Code::Interrupted as i32);
        }
        if !SILENT.load(SeqCst) {
            // A line of its own: a progress bar, or the terminal's `^C`, may stand in the one before.
            let _ = writeln!(std::io::stderr(), "\nstopping after this step; Ctrl-C again to stop now");
        }
    });
}

/// Says nothing when an end is asked for.
pub(crate) fn silence() {
    SILENT.store(true, SeqCst);
}

/// Whether an end was asked for.
pub(crate) fn asked() -> bool {
    ASKED.load(SeqCst)
}

/// For callbacks that can end what they watch.
pub(crate) fn flow() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
