//! Variables of the program that lie on the card, by the addresses of their shadows on the host.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::answer::{Answer, Code};
use crate::memory;

#[derive(Default)]
struct Symbol {
    bytes: usize,
    /// Of each card: where it lies there, once someone asked.
    addresses: HashMap<usize, usize>,
}

static SYMBOLS: LazyLock<Mutex<HashMap<usize, Symbol>>> = LazyLock::new(Mutex::default);

fn symbols() -> MutexGuard<'static, HashMap<usize, Symbol>> {
    SYMBOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a variable.
pub(crate) fn register(shadow: usize, bytes: usize) {
    symbols().insert(shadow, Symbol { bytes, addresses: HashMap::new() });
}

/// Where a variable lies on this thread's card, and its size. The driver puts variables in memory that it takes with the
/// module's code; that is part of what the settings call the context.
pub(crate) fn address(shadow: usize) -> Answer<(usize, usize)> {
    let card = crate::context::used()?;
    let mut symbols = symbols();
    let symbol = symbols.get_mut(&shadow).ok_or(Code(13))?;
    if let Some(address) = symbol.addresses.get(&card) {
        return Ok((*address, symbol.bytes));
    }
    let address = memory::place(card, symbol.bytes.max(1), memory::Origin::Imported)?;
    symbol.addresses.insert(card, address);
    Ok((address, symbol.bytes))
}

/// An address inside of a variable on this thread's card.
pub(crate) fn place(shadow: usize, offset: usize) -> Answer<usize> {
    Ok(address(shadow)?.0.wrapping_add(offset))
}
