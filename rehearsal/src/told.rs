//! Contents that a layer inside the program reports: it computes small tensors itself, while kernels do nothing.
//!
//! The layer (`python/`) shows contents while an operator runs, and queues the numbers that the operator will read. It
//! is called at reads that nothing could answer, and asks for writes that it could not see.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Called at a read of unknown contents, with the address on the card, the address on the host where zeros lie now, and bytes. Returns 1
/// if it has written the contents there.
pub(crate) type OnRead = extern "C" fn(u64, u64, u64) -> i32;

/// What the listener did at a read of unknown contents.
pub(crate) enum Heard {
    Nobody,
    Told,
    Answered,
}

/// Most ranges that are kept. With more, anything may have been written.
const MAX_RANGES: usize = 4096;

#[derive(Default)]
struct Written {
    anything: bool,
    ranges: Vec<[u64; 2]>,
}

thread_local! {
    static SHOWN: RefCell<Vec<(usize, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
    static ANSWERS: RefCell<VecDeque<i64>> = const { RefCell::new(VecDeque::new()) };
}

static ON_READ: Mutex<Option<OnRead>> = Mutex::new(None);
static LISTENS: AtomicBool = AtomicBool::new(false);
static WRITTEN: Mutex<Written> = Mutex::new(Written { anything: false, ranges: Vec::new() });

/// Number of writes that the layer could not see. It is a variable because the layer reads it often.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static vramlab_rehearsal_writes: AtomicU64 = AtomicU64::new(0);

/// Sets the function that is called at unknown reads from now on, if any.
pub(crate) fn listen(on_read: Option<OnRead>) {
    LISTENS.store(on_read.is_some(), Ordering::Relaxed);
    *ON_READ.lock().unwrap_or_else(PoisonError::into_inner) = on_read;
}

/// Reports a read of unknown contents. No lock is held meanwhile: the listener may take others.
pub(crate) fn unknown_read(from: usize, to: usize, bytes: usize) -> Heard {
    let listener = *ON_READ.lock().unwrap_or_else(PoisonError::into_inner);
    match listener.map(|tell| tell(from as u64, to as u64, bytes as u64)) {
        None => Heard::Nobody,
        Some(1) => Heard::Answered,
        Some(_) => Heard::Told,
    }
}

/// Shows contents to this thread's reads, until [`withdraw`].
pub(crate) fn show(address: usize, contents: Vec<u8>) {
    SHOWN.with_borrow_mut(|shown| shown.push((address, contents)));
}

/// Queues a number for this thread's next read of 1, 4 or 8 bytes that nothing else answers.
pub(crate) fn queue(number: i64) {
    ANSWERS.with_borrow_mut(|answers| answers.push_back(number));
}

/// Removes contents that were shown to this thread, and numbers that were queued for it.
pub(crate) fn withdraw() {
    SHOWN.with_borrow_mut(Vec::clear);
    unqueue();
}

/// Removes numbers that were queued for this thread, and returns how many were not read.
pub(crate) fn unqueue() -> usize {
    ANSWERS.with_borrow_mut(|answers| std::mem::take(answers).len())
}

/// Returns the contents that the layer shows for a range.
pub(crate) fn shown(address: usize, bytes: usize) -> Option<Vec<u8>> {
    SHOWN.with_borrow(|shown| {
        shown.iter().find_map(|(start, contents)| {
            let offset = address.checked_sub(*start)?;
            Some(contents.get(offset..offset.checked_add(bytes)?)?.to_vec())
        })
    })
}

/// Returns the number that the layer has queued for a read of this many bytes.
pub(crate) fn queued(bytes: usize) -> Option<Vec<u8>> {
    let number = matches!(bytes, 1 | 4 | 8).then(|| ANSWERS.with_borrow_mut(VecDeque::pop_front))??;
    Some(number.to_ne_bytes().get(..bytes)?.to_vec())
}

/// Notes that a range was written.
pub(crate) fn written(address: usize, bytes: usize) {
    note(|written| {
        written.anything |= written.ranges.len() >= MAX_RANGES;
        if !written.anything {
            written.ranges.push([address as u64, bytes as u64]);
        }
    });
}

/// Notes that anything may have been written.
pub(crate) fn anything_written() {
    note(|written| written.anything = true);
}

fn note(change: impl FnOnce(&mut Written)) {
    if LISTENS.load(Ordering::Relaxed) {
        change(&mut WRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
        vramlab_rehearsal_writes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the ranges that were written since the last call. `None` if anything may have been written.
pub(crate) fn take_written() -> Option<Vec<[u64; 2]>> {
    let written = std::mem::take(&mut *WRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
    (!written.anything).then_some(written.ranges)
}
