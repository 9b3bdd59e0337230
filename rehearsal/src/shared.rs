//! Bytes taken of each card: by this process, and by the others that share a file with it.
//!
//! The file (`VRAMLAB_REHEARSAL_SHARED`) is an array of [`Slot`], one per process. A process writes only its own slot,
//! and holds the file's lock while it decides whether its bytes still fit. Slots of processes that have ended no longer
//! count, and are used again. Without a file a process has the cards for itself.
//!
//! Behind the slots the file has two words for each card: the most bytes that several processes had on it at once, and how many these were.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::settings::{MAX_CARDS, settings};

/// Most processes at one time.
const SLOTS: usize = 1024;
/// A process ID, and the bytes that the process has on each card.
const WORDS: usize = 1 + MAX_CARDS;
const SLOT_BYTES: usize = WORDS * 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) pid: u64,
    pub(crate) used: [u64; MAX_CARDS],
}

struct Cards {
    own: Slot,
    file: Option<File>,
    /// Index of this process's slot in the file.
    index: Option<usize>,
}

static CARDS: LazyLock<Mutex<Cards>> = LazyLock::new(|| {
    let open = |path| OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).ok();
    let file = settings().shared.as_ref().and_then(|path| {
        let file = open(path);
        if file.is_none() {
            crate::log::once("memory_not_shared", "the file could not be opened");
        }
        file
    });
    Mutex::new(Cards { own: Slot { pid: pid(), used: [0; MAX_CARDS] }, file, index: None })
});

fn pid() -> u64 {
    u64::from(std::process::id())
}

/// Takes bytes of a card. Returns `false` if they do not fit beside the bytes of all processes.
pub(crate) fn charge(card: usize, bytes: u64) -> bool {
    let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let lock = cards.lock_file();
    let others = cards.others();
    let taken: u64 = others.iter().map(|slot| slot.used[card]).sum::<u64>() + cards.own.used[card];
    let fits = bytes <= settings().memory.saturating_sub(taken);
    if fits {
        cards.own.used[card] += bytes;
        cards.write(&others);
        let count = others.iter().filter(|slot| slot.used[card] > 0).count() as u64;
        if count > 0 {
            cards.note_most(card, taken + bytes, count + 1);
        }
    }
    drop(lock);
    fits
}

/// Releases bytes of a card.
pub(crate) fn release(card: usize, bytes: u64) {
    let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let lock = cards.lock_file();
    let others = cards.others();
    cards.own.used[card] = cards.own.used[card].saturating_sub(bytes);
    cards.write(&others);
    drop(lock);
}

/// Free bytes of a card.
pub(crate) fn free(card: usize) -> u64 {
    let taken: u64 = processes().iter().map(|slot| slot.used[card]).sum();
    settings().memory.saturating_sub(taken)
}

/// Returns all processes that have memory, this one included.
pub(crate) fn processes() -> Vec<Slot> {
    let cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let lock = cards.lock_file();
    let mut all: Vec<Slot> = cards.others().into_iter().collect();
    all.push(cards.own);
    drop(lock);
    all
}

/// A lock on the file, released when dropped.
struct Locked(i32);

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: takes a descriptor, which `CARDS` keeps open, and no pointers.
        unsafe { libc::flock(self.0, libc::LOCK_UN) };
    }
}

impl Cards {
    fn lock_file(&self) -> Option<Locked> {
        let descriptor = self.file.as_ref()?.as_raw_fd();
        // SAFETY: takes a descriptor, which `CARDS` keeps open, and no pointers.
        unsafe { libc::flock(descriptor, libc::LOCK_EX) };
        Some(Locked(descriptor))
    }

    /// Returns the slots of other processes that still run.
    fn others(&self) -> Vec<Slot> {
        self.slots().into_iter().filter(|slot| slot.pid != self.own.pid && is_running(slot.pid)).collect()
    }

    /// Returns all slots that were ever written, in the file's order.
    fn slots(&self) -> Vec<Slot> {
        let Some(file) = &self.file else { return Vec::new() };
        let mut bytes = vec![0; SLOTS * SLOT_BYTES];
        let mut read = 0;
        while let Ok(count @ 1..) = file.read_at(&mut bytes[read..], read as u64) {
            read += count;
        }
        let word = |slot: &[u8], at: usize| {
            let word = slot[at * 8..at * 8 + 8].try_into().unwrap_or([0; 8]);
            u64::from_ne_bytes(word)
        };
        let slot = |slot: &[u8]| Slot { pid: word(slot, 0), used: std::array::from_fn(|card| word(slot, 1 + card)) };
        bytes[..read].chunks_exact(SLOT_BYTES).map(slot).collect()
    }

    /// Notes what this many processes have on a card at once, if it is the most so far.
    fn note_most(&self, card: usize, bytes: u64, processes: u64) {
        let Some(file) = &self.file else { return };
        let at = (SLOTS * SLOT_BYTES + card * 16) as u64;
        let mut most = [0; 8];
        // A file that ends before has none.
        let _none = file.read_exact_at(&mut most, at);
        if bytes > u64::from_ne_bytes(most) {
            let words = [bytes.to_ne_bytes(), processes.to_ne_bytes()].concat();
            if file.write_all_at(&words, at).is_err() {
                crate::log::once("memory_not_shared", "the file could not be written");
            }
        }
    }

    fn write(&mut self, others: &[Slot]) {
        if self.index.is_none() {
            let slots = self.slots();
            let is_free = |slot: &Slot| slot.pid == self.own.pid || !others.contains(slot);
            let index = slots.iter().position(is_free).unwrap_or(slots.len());
            if index < SLOTS {
                self.index = Some(index);
            } else {
                crate::log::once("memory_not_shared", "too many processes");
            }
        }
        let (Some(file), Some(index)) = (&self.file, self.index) else { return };
        let words = std::iter::once(self.own.pid).chain(self.own.used);
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        if file.write_all_at(&bytes, (index * SLOT_BYTES) as u64).is_err() {
            crate::log::once("memory_not_shared", "the file could not be written");
        }
    }
}

fn is_running(pid: u64) -> bool {
    let Ok(pid @ 1..) = i32::try_from(pid) else { return false };
    // SAFETY: signal 0 is sent to nobody; it only asks.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}
