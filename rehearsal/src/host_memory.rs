//! Host memory that the card can access: pinned, registered, managed. It is real memory of the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::answer::{Answer, Code};

/// Origin of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From `cudaHostAlloc` and similar functions.
    Pinned,
    /// The program's own memory, registered.
    Registered,
    /// From `cudaMallocManaged`.
    Managed,
}

/// A range of host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) bytes: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) card: usize,
}

static RANGES: Mutex<BTreeMap<usize, Range>> = Mutex::new(BTreeMap::new());

/// Bytes of page-locked memory (pinned and registered), and of managed memory: those there are, and the most there were.
#[derive(Clone, Copy, Default)]
struct Taken {
    now: [usize; 2],
    peak: [usize; 2],
}

static TAKEN: Mutex<Taken> = Mutex::new(Taken { now: [0; 2], peak: [0; 2] });

/// Counts a range that begins or ends.
fn count(range: &Range, begins: bool) {
    let place = usize::from(range.kind == Kind::Managed);
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = taken.now[place];
    taken.now[place] = if begins { now.saturating_add(range.bytes) } else { now.saturating_sub(range.bytes) };
    taken.peak[place] = taken.peak[place].max(taken.now[place]);
}

/// The most bytes of page-locked and of managed memory that this process had at once.
pub(crate) fn peaks() -> [u64; 2] {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).peak.map(|bytes| bytes as u64)
}

fn ranges() -> MutexGuard<'static, BTreeMap<usize, Range>> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates host memory; 0 bytes give null. Managed memory takes no device memory until a kernel touches it.
pub(crate) fn allocate(bytes: usize, kind: Kind, flags: u32, card: usize) -> Answer<usize> {
    if bytes == 0 {
        return Ok(0);
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let got =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    let range = Range { bytes, kind, flags, card };
    ranges().insert(got as usize, range);
    count(&range, true);
    Ok(got as usize)
}

/// Frees memory from [`allocate`].
pub(crate) fn free(address: usize, kind: Kind) -> Answer {
    let mut ranges = ranges();
    let range = ranges.get(&address).filter(|range| range.kind == kind).ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the mapping that `allocate` made, of the same size, which the program gives up.
    unsafe { libc::munmap(address as *mut _, range.bytes) };
    count(range, false);
    ranges.remove(&address);
    Ok(())
}

/// Registers memory of the program's own.
pub(crate) fn register(address: usize, bytes: usize, flags: u32, card: usize) -> Answer {
    if address == 0 || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut ranges = ranges();
    if overlapping(&ranges, address, bytes) {
        return Err(Code::HOST_ALREADY_REGISTERED);
    }
    let range = Range { bytes, kind: Kind::Registered, flags, card };
    ranges.insert(address, range);
    count(&range, true);
    Ok(())
}

fn overlapping(ranges: &BTreeMap<usize, Range>, address: usize, bytes: usize) -> bool {
    let before = ranges.range(..address.saturating_add(bytes)).next_back();
    before.is_some_and(|(start, range)| start + range.bytes > address)
}

/// Unregisters memory of the program's own.
pub(crate) fn unregister(address: usize) -> Answer {
    let mut ranges = ranges();
    let range = ranges.get(&address).filter(|range| range.kind == Kind::Registered);
    count(range.ok_or(Code::HOST_NOT_REGISTERED)?, false);
    ranges.remove(&address);
    Ok(())
}

/// Returns the range that contains an address.
pub(crate) fn find(address: usize) -> Option<Range> {
    let ranges = ranges();
    let (start, range) = ranges.range(..=address).next_back()?;
    (address - start < range.bytes).then_some(*range)
}
