//! Ctrl-C: the first press asks for an end, the second one ends.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Listens for Ctrl-C, and for the signals that ask a process to end. Where that is impossible, they end the process as they always do.
pub(crate) fn install() {
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, SeqCst) {
            std::process::exit(crate::exit::Code::Interrupted as i32);
        }
    });
}

/// Whether an end was asked for.
pub(crate) fn asked() -> bool {
    ASKED.load(SeqCst)
}

/// For callbacks that can end what they watch.
pub(crate) fn flow() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
