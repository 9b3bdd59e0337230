//! Whether operations are recorded.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether operations on this thread are recorded.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// While it lives, operations on this thread are not recorded. (A guard from `NoGrad::enable` turns recording on
/// instead.)
#[must_use = "recording is restored when the guard is dropped"]
pub struct NoGrad {
    before: bool,
}

impl NoGrad {
    /// Turns recording off until dropped.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { before: ENABLED.replace(false) }
    }

    /// Turns recording on inside a region where it is off: recomputation during backward needs that.
    pub(crate) fn enable() -> Self {
        Self { before: ENABLED.replace(true) }
    }
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        ENABLED.set(self.before);
    }
}
