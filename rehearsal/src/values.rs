//! What is known of device memory's contents. This is the one file that decides what a read of it answers.
//!
//! Kernels do nothing, so what they would have written is not known, nor where. What the host has copied to the card is
//! known until anything runs there. All else reads as zeros; such reads are counted and logged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{space, told};

/// The most bytes of one copy that are kept, and of all copies together.
const MAX_KEPT: usize = 1 << 20;
const MAX_KEPT_TOGETHER: usize = 64 << 20;

#[derive(Default)]
struct Known {
    /// The launch after which this was known.
    launches: u64,
    /// Contents by address; they do not overlap.
    ranges: BTreeMap<usize, Vec<u8>>,
    bytes: usize,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { launches: 0, ranges: BTreeMap::new(), bytes: 0 });
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static READS_KNOWN: AtomicU64 = AtomicU64::new(0);
static READS_UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// Something runs on a card: it may write anywhere.
pub(crate) fn launched() {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

/// How many things ran, and how many reads had known and unknown contents.
pub(crate) fn counters() -> [u64; 3] {
    [&LAUNCHES, &READS_KNOWN, &READS_UNKNOWN].map(|counter| counter.load(Ordering::Relaxed))
}

/// The memory at these addresses is gone.
pub(crate) fn forget(address: usize, bytes: usize) {
    known().clear(address, bytes);
}

/// Something wrote to these addresses what is not known.
pub(crate) fn overwritten(address: usize, bytes: usize) {
    forget(address, bytes);
    told::written(address, bytes);
}

/// Copies between any two addresses, each the host's or a card's.
pub(crate) fn copy(to: usize, from: usize, bytes: usize) {
    if bytes == 0 || to == from {
        return;
    }
    if space::card_of(to).is_some() {
        told::written(to, bytes);
    }
    match (space::card_of(to).is_some(), space::card_of(from).is_some()) {
        // SAFETY: the caller of a copy vouches for both host ranges; `copy` lets them overlap.
        (false, false) => unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) },
        (true, false) if bytes <= MAX_KEPT => {
            // SAFETY: the caller of a copy vouches for the host range that it copies from.
            let contents = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
            known().write(to, contents.to_vec());
        }
        (true, true) => {
            let mut known = known();
            match known.read(from, bytes) {
                Some(contents) => known.write(to, contents),
                None => known.clear(to, bytes),
            }
        }
        (true, false) => known().clear(to, bytes),
        (false, true) => read(to, from, bytes),
    }
}

fn read(to: usize, from: usize, bytes: usize) {
    let found = told::contents(from, bytes).or_else(|| known().read(from, bytes));
    match found {
        Some(contents) => {
            READS_KNOWN.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller of a copy vouches for the host range that it copies to.
            unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), to as *mut u8, bytes) };
        }
        None => {
            READS_UNKNOWN.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller of a copy vouches for the host range that it copies to.
            unsafe { std::ptr::write_bytes(to as *mut u8, 0, bytes) };
            if !told::unknown_read(from, bytes) {
                crate::log::once("unknown_read", &bytes.to_string());
            }
        }
    }
}

/// Fills memory of the host or a card with a pattern.
pub(crate) fn fill(address: usize, pattern: &[u8], count: usize) {
    let Some(bytes) = count.checked_mul(pattern.len()).filter(|bytes| *bytes > 0) else { return };
    if space::card_of(address).is_none() && pattern.len() == 1 {
        // SAFETY: the caller vouches for the host range that it fills.
        unsafe { std::ptr::write_bytes(address as *mut u8, pattern[0], count) };
    } else if space::card_of(address).is_none() {
        for index in 0..count {
            let at = (address + index * pattern.len()) as *mut u8;
            // SAFETY: the caller vouches for the host range that it fills.
            unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), at, pattern.len()) };
        }
    } else {
        told::written(address, bytes);
        if bytes <= MAX_KEPT {
            known().write(address, pattern.repeat(count));
        } else {
            known().clear(address, bytes);
        }
    }
}

fn known() -> MutexGuard<'static, Known> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let launches = LAUNCHES.load(Ordering::Relaxed);
    if known.launches != launches || known.bytes > MAX_KEPT_TOGETHER {
        *known = Known { launches, ..Known::default() };
    }
    known
}

impl Known {
    /// Cuts a range out of what is known.
    fn clear(&mut self, start: usize, bytes: usize) {
        let end = start.saturating_add(bytes);
        while let Some((at, contents)) = self.overlapping(start, end) {
            self.bytes -= contents.len();
            if at < start {
                self.insert(at, contents[..start - at].to_vec());
            }
            if at + contents.len() > end {
                self.insert(end, contents[end - at..].to_vec());
            }
        }
    }

    /// Takes out a piece that reaches into a range.
    fn overlapping(&mut self, start: usize, end: usize) -> Option<(usize, Vec<u8>)> {
        let (at, contents) = self.ranges.range(..end).next_back()?;
        let at = (at + contents.len() > start).then_some(*at)?;
        self.ranges.remove_entry(&at)
    }

    fn insert(&mut self, at: usize, contents: Vec<u8>) {
        self.bytes += contents.len();
        self.ranges.insert(at, contents);
    }

    fn write(&mut self, address: usize, contents: Vec<u8>) {
        self.clear(address, contents.len());
        self.insert(address, contents);
    }

    /// What a range holds, if all of it is known.
    fn read(&self, address: usize, bytes: usize) -> Option<Vec<u8>> {
        let (first, contents) = self.ranges.range(..=address).next_back()?;
        let mut found = contents.get(address - first..)?.to_vec();
        while found.len() < bytes {
            found.extend_from_slice(self.ranges.get(&(address + found.len()))?);
        }
        found.truncate(bytes);
        Some(found)
    }
}
