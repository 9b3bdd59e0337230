//! Threads that look at files as they are: what happens here must not be answered here.

use std::cell::Cell;

thread_local! {
    static AS_IT_IS: Cell<bool> = const { Cell::new(false) };
}

/// Until this is dropped, this thread's calls are the C library's own.
pub(super) struct AsItIs(bool);

/// Lets this thread see files as they are.
pub(super) fn as_it_is() -> AsItIs {
    AsItIs(AS_IT_IS.replace(true))
}

impl Drop for AsItIs {
    fn drop(&mut self) {
        AS_IT_IS.set(self.0);
    }
}

/// Whether this thread does.
pub(super) fn holds() -> bool {
    AS_IT_IS.try_with(Cell::get).unwrap_or(true)
}
