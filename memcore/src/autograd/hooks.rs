//! Hooks on saved values: a value can be packed when a node saves it, and unpacked when backward needs it.
//!
//! Checkpointing and offloading are built on these, as in PyTorch.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

use crate::array::Array;
use crate::error::Result;

/// The packed form of a saved value between forward and backward.
pub type Packed = Box<dyn Any + Send + Sync>;

/// A pair of functions that pack and unpack the values that nodes save.
pub trait SavedHooks: Send + Sync {
    /// Called when a value is saved; the node keeps what this returns instead of the array.
    ///
    /// # Errors
    /// The operation that saves fails with the same error.
    fn pack(&self, array: Array) -> Result<Packed>;

    /// Called when backward needs the value.
    ///
    /// # Errors
    /// Backward fails with the same error.
    fn unpack(&self, packed: &Packed) -> Result<Array>;
}

thread_local! {
    static STACK: RefCell<Vec<Arc<dyn SavedHooks>>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, values saved on this thread go through its hooks. The innermost guard wins.
#[must_use = "the hooks are removed when the guard is dropped"]
pub struct SavedHooksGuard(());

impl SavedHooksGuard {
    /// Installs `hooks`.
    pub fn new(hooks: Arc<dyn SavedHooks>) -> Self {
        STACK.with_borrow_mut(|stack| stack.push(hooks));
        Self(())
    }
}

impl Drop for SavedHooksGuard {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|stack| stack.pop());
    }
}

/// The hooks that apply to a value saved now.
pub(super) fn current() -> Option<Arc<dyn SavedHooks>> {
    STACK.with_borrow(|stack| stack.last().cloned())
}
