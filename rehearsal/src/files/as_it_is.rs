//! Threads that see files as they are: this library's own file accesses must not be redirected.

use std::cell::Cell;

thread_local! {
    static AS_IT_IS: Cell<bool> = const { Cell::new(false) };
}

/// While this exists, this thread's calls go to the C library.
pub(super) struct AsItIs(bool);

/// Lets this thread see files as they are, until the result is dropped.
pub(super) fn as_it_is() -> AsItIs {
    AsItIs(AS_IT_IS.replace(true))
}

impl Drop for AsItIs {
    fn drop(&mut self) {
        AS_IT_IS.set(self.0);
    }
}

/// True if this thread sees files as they are.
pub(super) fn holds() -> bool {
    AS_IT_IS.try_with(Cell::get).unwrap_or(true)
}
