//! Whether a thread is in the wheel's own cuDNN, which plans without a card.

use std::cell::{Cell, RefCell};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static LIMIT: Cell<u64> = const { Cell::new(0) };
    static PRODUCTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
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

/// Notes how many bytes of workspace cuBLASLt may take for the algorithms that it is asked for next.
pub(crate) fn limit_products(bytes: u64) {
    LIMIT.set(bytes);
}

/// Notes that cuBLASLt was asked for algorithms, if this is part of planning.
pub(crate) fn ask_products() {
    if is_planning() {
        PRODUCTS.with_borrow_mut(|products| products.push(LIMIT.get()));
    }
}

/// Returns the limits with which this thread has asked cuBLASLt since the last call, in order.
pub(crate) fn take_products() -> Vec<u64> {
    PRODUCTS.take()
}
