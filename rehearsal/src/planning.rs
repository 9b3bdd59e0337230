//! Whether a thread is in the wheel's own cuDNN, which plans without a card.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static PRODUCTS: Cell<u32> = const { Cell::new(0) };
}

/// Calls a function that is in the library while it runs.
pub(crate) fn inside<T>(call: impl FnOnce() -> T) -> T {
    DEPTH.set(DEPTH.get() + 1);
    let result = call();
    DEPTH.set(DEPTH.get() - 1);
    result
}

/// True while this thread is in the library: what it does to the card then is part of planning.
pub(crate) fn is_planning() -> bool {
    DEPTH.get() > 0
}

/// Notes that cuBLASLt was asked for an algorithm.
pub(crate) fn ask_product() {
    PRODUCTS.set(PRODUCTS.get() + 1);
}

/// Returns how often this thread has asked cuBLASLt since the last call.
pub(crate) fn take_products() -> u32 {
    PRODUCTS.take()
}
