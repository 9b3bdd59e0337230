//! What a layer inside the program tells of contents: it computes small tensors for itself, beside kernels that do nothing.
//!
//! The layer (`python/`) shows contents for as long as an operator runs, queues the numbers that an operator
//! will read while it runs, hears of reads that nobody could answer, and asks what was written that it could not see.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Told of a read of unknown contents: address and bytes.
pub(crate) type OnRead = extern "C" fn(u64, u64);

/// The most ranges that are kept; beyond, anything may have been written.
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

/// How often something was written that the layer could not see. It reads this often, so it is a variable.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static vramlab_rehearsal_writes: AtomicU64 = AtomicU64::new(0);

/// Who is told of unknown reads from now on, if anyone.
pub(crate) fn listen(on_read: Option<OnRead>) {
    LISTENS.store(on_read.is_some(), Ordering::Relaxed);
    *ON_READ.lock().unwrap_or_else(PoisonError::into_inner) = on_read;
}

/// Tells of a read of unknown contents; false if nobody listens. No lock is held meanwhile: the listener may take others.
pub(crate) fn unknown_read(address: usize, bytes: usize) -> bool {
    let listener = *ON_READ.lock().unwrap_or_else(PoisonError::into_inner);
    listener.inspect(|tell| tell(address as u64, bytes as u64)).is_some()
}

/// Shows contents to this thread's reads, until [`withdraw`].
pub(crate) fn show(address: usize, contents: Vec<u8>) {
    SHOWN.with_borrow_mut(|shown| shown.push((address, contents)));
}

/// Queues a number for this thread's next read of 1, 4 or 8 bytes that nothing else answers.
pub(crate) fn queue(number: i64) {
    ANSWERS.with_borrow_mut(|answers| answers.push_back(number));
}

/// Ends what this thread was shown, and what was queued for it.
pub(crate) fn withdraw() {
    SHOWN.with_borrow_mut(Vec::clear);
    unqueue();
}

/// Ends what was queued for this thread, and returns how many numbers nobody read.
pub(crate) fn unqueue() -> usize {
    ANSWERS.with_borrow_mut(|answers| std::mem::take(answers).len())
}

/// What the layer shows of a range.
pub(crate) fn shown(address: usize, bytes: usize) -> Option<Vec<u8>> {
    SHOWN.with_borrow(|shown| {
        shown.iter().find_map(|(start, contents)| {
            let offset = address.checked_sub(*start)?;
            Some(contents.get(offset..offset.checked_add(bytes)?)?.to_vec())
        })
    })
}

/// The number that the layer has queued for a read of so many bytes.
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

/// Notes that something may have written anywhere.
pub(crate) fn anything_written() {
    note(|written| written.anything = true);
}

fn note(change: impl FnOnce(&mut Written)) {
    if LISTENS.load(Ordering::Relaxed) {
        change(&mut WRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
        vramlab_rehearsal_writes.fetch_add(1, Ordering::Relaxed);
    }
}

/// What was written since the last call: none if that may be anything.
pub(crate) fn take_written() -> Option<Vec<[u64; 2]>> {
    let written = std::mem::take(&mut *WRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
    (!written.anything).then_some(written.ranges)
}
