//! The card that a thread uses, and the cards that this process has used: a used card takes memory, and a forked child
//! may not use it.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::answer::{Answer, Code};
use crate::settings::{MAX_CARDS, settings};
use crate::shared;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static BOUND: Cell<bool> = const { Cell::new(false) };
}

static ACTIVE: [AtomicBool; MAX_CARDS] = [const { AtomicBool::new(false) }; MAX_CARDS];
static FORKED: AtomicBool = AtomicBool::new(false);

/// Base of the handles of the cards' contexts.
const CONTEXTS: usize = 0x5400_0000_0000;

/// Notes that the driver is in use. A child forked after this cannot use it.
pub(crate) fn initialize() -> Answer {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: the handler writes one atomic, which a child of a fork may do.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    if FORKED.load(Ordering::Relaxed) { Err(Code::NOT_INITIALIZED) } else { Ok(()) }
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Checks the number of a card.
pub(crate) fn card(number: c_int) -> Answer<usize> {
    initialize()?;
    if settings().cards == 0 {
        return Err(Code::NO_DEVICE);
    }
    usize::try_from(number).ok().filter(|card| *card < settings().cards).ok_or(Code::INVALID_DEVICE)
}

/// Card of this thread.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Sets the card of this thread.
pub(crate) fn set_current(card: usize) {
    CURRENT.set(card);
}

/// Returns the card of this thread, which counts as used from now on.
pub(crate) fn used() -> Answer<usize> {
    let card = card(current() as c_int)?;
    activate(card);
    BOUND.set(true);
    Ok(card)
}

/// Makes a card's context, which takes memory.
pub(crate) fn activate(card: usize) {
    if ACTIVE[card].swap(true, Ordering::Relaxed) {
        return;
    }
    if !shared::charge(card, settings().context_bytes) {
        crate::log::once("context_does_not_fit", &card.to_string());
    }
    if loads_all_modules() {
        crate::log::once("all_modules", "CUDA_MODULE_LOADING");
    }
}

/// True if the environment asks for all modules at once. PyTorch sets the variable to `LAZY` unless it is set.
pub(crate) fn loads_all_modules() -> bool {
    std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|mode| mode == "EAGER")
}

/// True if this process has used a card.
pub(crate) fn is_active(card: usize) -> bool {
    ACTIVE[card].load(Ordering::Relaxed)
}

/// Handle of a card's context.
pub(crate) fn handle(card: usize) -> usize {
    CONTEXTS + card * 64
}

/// Card of a context.
pub(crate) fn of_handle(handle: usize) -> Answer<usize> {
    let card = handle.checked_sub(CONTEXTS).map(|offset| offset / 64);
    card.filter(|card| *card < settings().cards).ok_or(Code::INVALID_CONTEXT)
}

/// Handle of this thread's context, or null.
pub(crate) fn bound() -> usize {
    if BOUND.get() { handle(current()) } else { 0 }
}

/// Sets this thread's context; null removes it.
pub(crate) fn bind(context: usize) -> Answer {
    if context == 0 {
        BOUND.set(false);
        return Ok(());
    }
    set_current(of_handle(context)?);
    used().map(|_| ())
}
