//! Whether operations are recorded.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether operations on this thread are recorded.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// While it lives, operations on this thread are not recorded (or, made by `NoGrad::enable`, are).
#[must_use = "recording is restored when the guard is dropped"]
pub struct NoGrad {
    before: bool,
}

impl NoGrad {
    /// Records nothing until dropped.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { before: ENABLED.replace(false) }
    }

    /// Records, inside a region that does not: what a recomputation in backward needs.
    pub(crate) fn enable() -> Self {
        Self { before: ENABLED.replace(true) }
    }
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        ENABLED.set(self.before);
    }
}
