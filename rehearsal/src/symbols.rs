//! Variables of the program that lie on the card, by the addresses of their shadows on the host.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::answer::{Answer, Code};
use crate::memory;

#[derive(Default)]
struct Symbol {
    bytes: usize,
    /// Address on each card, once the program has asked for it.
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

/// Returns a variable's address on this thread's card, and its size. The driver places variables in memory that it takes
/// for the module's code. The settings count that memory as part of the context.
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

/// Returns an address inside a variable on this thread's card.
pub(crate) fn place(shadow: usize, offset: usize) -> Answer<usize> {
    Ok(address(shadow)?.0.wrapping_add(offset))
}
