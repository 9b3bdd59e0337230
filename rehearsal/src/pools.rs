//! Pools of stream-ordered allocations (`cudaMallocAsync`).
//!
//! A pool takes memory of its card in steps and keeps it up to its threshold. How the driver places allocations in a
//! pool is not documented; here no memory is lost between them.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::answer::{Answer, Code};
use crate::memory::{self, Origin, rounded};
use crate::{handles, shared};

/// Step in which a pool takes memory.
const STEP: u64 = 32 << 20;
/// Allocations are multiples of this.
const ALLOCATION_STEP: usize = 512;

#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    card: usize,
    is_default: bool,
    /// True for each reuse policy, numbered 1 to 3, that is off. By default all are on, as documented.
    policies_off: [bool; 3],
    threshold: u64,
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
}

static POOLS: LazyLock<Mutex<HashMap<usize, Pool>>> = LazyLock::new(Mutex::default);
static CURRENT: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

fn pools() -> MutexGuard<'static, HashMap<usize, Pool>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Default pool of a card.
pub(crate) fn default_of(card: usize) -> usize {
    let mut pools = pools();
    let found = pools.iter().find(|(_, pool)| pool.card == card && pool.is_default).map(|(handle, _)| *handle);
    found.unwrap_or_else(|| {
        let handle = handles::new();
        pools.insert(handle, Pool { card, is_default: true, ..Pool::default() });
        handle
    })
}

/// Pool for a card's allocations.
pub(crate) fn current_of(card: usize) -> usize {
    let chosen = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).get(&card).copied();
    chosen.unwrap_or_else(|| default_of(card))
}

/// Sets the pool for a card's allocations.
pub(crate) fn set_current(card: usize, pool: usize) -> Answer {
    pools().get(&pool).ok_or(Code::INVALID_VALUE)?;
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).insert(card, pool);
    Ok(())
}

pub(crate) fn create(card: usize) -> usize {
    let handle = handles::new();
    pools().insert(handle, Pool { card, ..Pool::default() });
    handle
}

/// Destroys a pool, with the memory that it keeps.
pub(crate) fn destroy(handle: usize) -> Answer {
    let mut pools = pools();
    let pool = pools.get(&handle).filter(|pool| !pool.is_default).ok_or(Code::INVALID_VALUE)?;
    shared::release(pool.card, pool.reserved);
    pools.remove(&handle);
    Ok(())
}

/// Allocates from a pool.
pub(crate) fn allocate(handle: usize, bytes: usize) -> Answer<usize> {
    if bytes == 0 {
        return Ok(0);
    }
    let mut pools = pools();
    let pool = pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
    let used = pool.used.saturating_add(rounded(bytes, ALLOCATION_STEP)? as u64);
    if used > pool.reserved {
        // The last step of a card's memory may be smaller.
        let least = used - pool.reserved;
        let more = least.checked_next_multiple_of(STEP).unwrap_or(least);
        let grown = [more, least].into_iter().find(|bytes| shared::charge(pool.card, *bytes));
        pool.reserved += grown.ok_or(Code::OUT_OF_MEMORY)?;
    }
    pool.used = used;
    pool.used_high = pool.used_high.max(used);
    pool.reserved_high = pool.reserved_high.max(pool.reserved);
    memory::place(pool.card, bytes, Origin::Pool(handle))
}

/// Counts an allocation of a pool as free. The pool keeps the memory until the next [`synchronized`].
pub(crate) fn freed(handle: usize, bytes: usize) {
    if let Some(pool) = pools().get_mut(&handle) {
        pool.used = pool.used.saturating_sub(bytes.next_multiple_of(ALLOCATION_STEP) as u64);
    }
}

/// Releases memory that pools keep above their threshold. Called after a wait for the card.
pub(crate) fn synchronized() {
    for pool in pools().values_mut() {
        pool.trim(pool.threshold);
    }
}

/// Releases memory that a pool keeps above `keep` bytes.
pub(crate) fn trim(handle: usize, keep: u64) -> Answer {
    pools().get_mut(&handle).ok_or(Code::INVALID_VALUE)?.trim(keep);
    Ok(())
}

impl Pool {
    fn trim(&mut self, keep: u64) {
        let wanted = self.used.next_multiple_of(STEP).max(keep);
        if self.reserved > wanted {
            shared::release(self.card, self.reserved - wanted);
            self.reserved = wanted;
        }
    }
}

/// Returns an attribute of a pool by its number. The first three are ints.
pub(crate) fn attribute(handle: usize, number: i32) -> Answer<u64> {
    let pools = pools();
    let pool = pools.get(&handle).ok_or(Code::INVALID_VALUE)?;
    match number {
        1..=3 => Ok(u64::from(!pool.policies_off[number as usize - 1])),
        4 => Ok(pool.threshold),
        5 => Ok(pool.reserved),
        6 => Ok(pool.reserved_high),
        7 => Ok(pool.used),
        8 => Ok(pool.used_high),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Sets an attribute of a pool. High marks can only be set to 0.
pub(crate) fn set_attribute(handle: usize, number: i32, value: u64) -> Answer {
    let mut pools = pools();
    let pool = pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
    match (number, value) {
        (1..=3, _) => pool.policies_off[number as usize - 1] = value == 0,
        (4, _) => pool.threshold = value,
        (6, 0) => pool.reserved_high = pool.reserved,
        (8, 0) => pool.used_high = pool.used,
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}
