//! Known contents of device memory. This is the one file that decides how a read of it is answered.
//!
//! Kernels do nothing, so that what they would have written is not known, nor where. Contents that the host has copied
//! to the card are known until anything runs there. Everything else reads as zeros; such reads are counted and logged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::promise::{Part, Promise};
use crate::told::Heard;
use crate::{space, told};

/// Most bytes of one copy that are kept, and of all copies together.
const MAX_KEPT: usize = 1 << 20;
const MAX_KEPT_TOGETHER: usize = 64 << 20;

/// Contents of a range.
#[derive(Clone)]
enum Piece {
    Bytes(Vec<u8>),
    /// A part of a collective's result.
    Promised(Arc<Promise>, Range<usize>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Promised(_, range) => range.len(),
        }
    }

    fn part(&self, part: Range<usize>) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes[part].to_vec()),
            Self::Promised(promise, range) => {
                Self::Promised(Arc::clone(promise), range.start + part.start..range.start + part.end)
            }
        }
    }
}

/// Result of a look at contents.
enum Found {
    Known(Vec<u8>),
    Unknown,
    /// Contents that must be waited for first.
    Waits(Arc<Promise>),
}

#[derive(Default)]
struct Known {
    /// Number of launches when the contents were stored. Any later launch makes them unknown.
    launches: u64,
    /// Contents by address; they do not overlap.
    ranges: BTreeMap<usize, Piece>,
    bytes: usize,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { launches: 0, ranges: BTreeMap::new(), bytes: 0 });
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static READS_KNOWN: AtomicU64 = AtomicU64::new(0);
static READS_UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// Notes that something runs on a card, which may write anywhere.
pub(crate) fn launched() {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of operations that ran, and of reads with known and with unknown contents.
pub(crate) fn counters() -> [u64; 3] {
    [&LAUNCHES, &READS_KNOWN, &READS_UNKNOWN].map(|counter| counter.load(Ordering::Relaxed))
}

/// Forgets the contents of freed memory.
pub(crate) fn forget(address: usize, bytes: usize) {
    known().clear(address, bytes);
}

/// Notes a write of unknown contents to these addresses.
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
            known().write(to, Piece::Bytes(contents.to_vec()));
        }
        (true, true) => {
            let mut known = known();
            let pieces = known.pieces(from, bytes);
            known.clear(to, bytes);
            for (offset, piece) in pieces.into_iter().flatten() {
                known.insert(to + offset, piece);
            }
        }
        (true, false) => known().clear(to, bytes),
        (false, true) => read(to, from, bytes),
    }
}

/// Returns the contents of a range of a card, if they are known: a layer inside the program shows them, or they were
/// copied there. Waits for a collective's result in the range.
pub(crate) fn contents(address: usize, bytes: usize) -> Option<Vec<u8>> {
    let shown = told::shown(address, bytes);
    if shown.is_some() {
        return shown;
    }
    loop {
        // No lock is held while other ranks are waited for.
        let found = known().read(address, bytes);
        match found {
            Found::Known(contents) => return Some(contents),
            Found::Unknown => return None,
            Found::Waits(promise) => promise.wait(),
        }
    }
}

/// Promises a range of a card the result of a collective.
pub(crate) fn promise(address: usize, bytes: usize, promise: &Arc<Promise>, start: usize) {
    told::written(address, bytes);
    known().write(address, Piece::Promised(Arc::clone(promise), start..start + bytes));
}

/// Returns the promises that make up a range, in order, each with its range.
pub(crate) fn promised(address: usize, bytes: usize) -> Option<Vec<Part>> {
    let of = |(_, piece)| match piece {
        Piece::Promised(promise, range) => Some((promise, range)),
        Piece::Bytes(_) => None,
    };
    known().pieces(address, bytes)?.into_iter().map(of).collect()
}

fn read(to: usize, from: usize, bytes: usize) {
    let found = told::shown(from, bytes).or_else(|| told::queued(bytes)).or_else(|| contents(from, bytes));
    match found {
        Some(contents) => {
            READS_KNOWN.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller of a copy vouches for the host range that it copies to.
            unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), to as *mut u8, bytes) };
        }
        None => {
            // SAFETY: the caller of a copy vouches for the host range that it copies to.
            unsafe { std::ptr::write_bytes(to as *mut u8, 0, bytes) };
            let heard = told::unknown_read(from, to, bytes);
            let count = if matches!(heard, Heard::Answered) { &READS_KNOWN } else { &READS_UNKNOWN };
            count.fetch_add(1, Ordering::Relaxed);
            if matches!(heard, Heard::Nobody) {
                crate::log::once("unknown_read", &bytes.to_string());
            }
        }
    }
}

/// Fills memory of the host or of a card with a pattern.
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
            known().write(address, Piece::Bytes(pattern.repeat(count)));
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
    /// Removes a range from the known contents.
    fn clear(&mut self, start: usize, bytes: usize) {
        let end = start.saturating_add(bytes);
        while let Some((at, piece)) = self.overlapping(start, end) {
            self.bytes -= piece.len();
            if at < start {
                self.insert(at, piece.part(0..start - at));
            }
            if at + piece.len() > end {
                self.insert(end, piece.part(end - at..piece.len()));
            }
        }
    }

    /// Removes and returns a piece that reaches into a range.
    fn overlapping(&mut self, start: usize, end: usize) -> Option<(usize, Piece)> {
        let (at, piece) = self.ranges.range(..end).next_back()?;
        let at = (at + piece.len() > start).then_some(*at)?;
        self.ranges.remove_entry(&at)
    }

    fn insert(&mut self, at: usize, piece: Piece) {
        self.bytes += piece.len();
        self.ranges.insert(at, piece);
    }

    fn write(&mut self, address: usize, piece: Piece) {
        self.clear(address, piece.len());
        self.insert(address, piece);
    }

    /// Returns the pieces of a range by their offsets in it, if they make up all of it.
    fn pieces(&self, address: usize, bytes: usize) -> Option<Vec<(usize, Piece)>> {
        let mut found = Vec::new();
        let mut offset = 0;
        while offset < bytes {
            let at = address + offset;
            let (first, piece) = self.ranges.range(..=at).next_back()?;
            let start = at - first;
            let end = piece.len().min(start + bytes - offset);
            if end <= start {
                return None;
            }
            found.push((offset, piece.part(start..end)));
            offset += end - start;
        }
        Some(found)
    }

    /// Returns the contents of a range, if all of it is known.
    fn read(&self, address: usize, bytes: usize) -> Found {
        let Some(pieces) = self.pieces(address, bytes) else { return Found::Unknown };
        let mut contents = Vec::with_capacity(bytes);
        for (_, piece) in pieces {
            match piece {
                Piece::Bytes(bytes) => contents.extend(bytes),
                Piece::Promised(promise, range) => match promise.found() {
                    None => return Found::Waits(promise),
                    Some(all) => match all.and_then(|all| all.get(range)) {
                        Some(part) => contents.extend_from_slice(part),
                        None => return Found::Unknown,
                    },
                },
            }
        }
        Found::Known(contents)
    }
}
