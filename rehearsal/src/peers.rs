//! Access to other cards' memory. All cards can have it, once a program asks for it.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use crate::answer::{Answer, Code};
use crate::context;

static ENABLED: Mutex<BTreeSet<(usize, usize)>> = Mutex::new(BTreeSet::new());

/// True if a card can access another's memory.
pub(crate) fn can_access(card: c_int, peer: c_int) -> Answer<bool> {
    let (card, peer) = (context::card(card)?, context::card(peer)?);
    Ok(card != peer)
}

/// Lets this thread's card access another's memory.
pub(crate) fn enable(peer: usize) -> Answer {
    let card = context::used()?;
    if card == peer {
        return Err(Code::PEER_UNSUPPORTED);
    }
    let is_new = ENABLED.lock().unwrap_or_else(PoisonError::into_inner).insert((card, peer));
    if is_new { Ok(()) } else { Err(Code::PEER_ALREADY_ENABLED) }
}

pub(crate) fn disable(peer: usize) -> Answer {
    let was_enabled = ENABLED.lock().unwrap_or_else(PoisonError::into_inner).remove(&(context::current(), peer));
    if was_enabled { Ok(()) } else { Err(Code::PEER_NOT_ENABLED) }
}
