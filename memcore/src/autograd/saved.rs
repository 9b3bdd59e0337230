//! What a node keeps for its backward.

use std::cell::RefCell;
use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;

use super::hooks::{self, Packed, SavedHooks};
use crate::array::Array;
use crate::context;
use crate::error::{Error, Result};

/// One value that a node keeps, with its role there.
pub struct SavedValue {
    role: &'static str,
    kept: Kept,
}

enum Kept {
    /// The array, and the version that its storage had.
    Array(Array, u32),
    /// What a hook made of it, and the address of the storage that it had, which only tells it from others.
    Packed(Arc<dyn SavedHooks>, Packed, usize),
}

impl SavedValue {
    /// Keeps `array`, through the hooks that are installed.
    pub(super) fn new(role: &'static str, array: &Array) -> Result<Self> {
        let kept = match hooks::current() {
            Some(hooks) => {
                let packed = hooks.pack(array.clone())?;
                Kept::Packed(hooks, packed, Arc::as_ptr(array.storage()).addr())
            }
            None => return Ok(Self::keep(role, array.clone())),
        };
        Ok(Self { role, kept })
    }

    /// Keeps `array` itself, whatever hooks are installed.
    pub(super) fn keep(role: &'static str, array: Array) -> Self {
        array.storage().add_saver();
        let version = array.storage().version();
        Self { role, kept: Kept::Array(array, version) }
    }

    /// What the value is to the node: `input`, `weight`, `result`, …
    pub fn role(&self) -> &'static str {
        self.role
    }

    /// The array, unless a hook keeps something else in its place.
    pub fn array(&self) -> Option<&Array> {
        match &self.kept {
            Kept::Array(array, _) => Some(array),
            Kept::Packed(..) => None,
        }
    }

    /// Whether a hook made something else of this very value.
    pub(super) fn is_packed(&self, array: &Array) -> bool {
        matches!(self.kept, Kept::Packed(.., address) if address == Arc::as_ptr(array.storage()).addr())
    }

    pub(super) fn unpack(&self, op: &'static str) -> Result<Array> {
        match &self.kept {
            Kept::Packed(hooks, packed, _) => hooks.unpack(packed),
            Kept::Array(array, expected) => {
                let found = array.storage().version();
                if found != *expected {
                    return Err(Error::StaleSavedValue { op, role: self.role, expected: *expected, found });
                }
                Ok(array.clone())
            }
        }
    }
}

impl Drop for SavedValue {
    fn drop(&mut self) {
        if let Kept::Array(array, _) = &self.kept {
            array.storage().remove_saver(array.is_unshared());
        }
    }
}

/// The saved values of a node; `None` once they were released. Not inside the node: a value is large, most nodes have few, and all are moved when they go.
pub(super) type Slots = Option<Vec<SavedValue>>;

/// A node's saved values, as its backward sees them. Each is unpacked when it is asked for.
pub struct Saved<'a> {
    op: &'static str,
    slots: MutexGuard<'a, Slots>,
    /// What hooks made anew: it lives as long as the backward function, as the local variables of PyTorch's do.
    unpacked: RefCell<SmallVec<[Array; 2]>>,
}

impl<'a> Saved<'a> {
    /// Of a node called `op`.
    pub(super) fn new(op: &'static str, slots: MutexGuard<'a, Slots>) -> Self {
        Self { op, slots, unpacked: RefCell::default() }
    }

    /// Drops what hooks made anew. What PyTorch's engine does to gradients after a backward function (summing a broadcast away) comes after this.
    pub fn done(&self) {
        let _function = context::function();
        self.release();
    }

    /// The variables of a C++ function go in the opposite order of their making.
    fn release(&self) {
        let mut unpacked = self.unpacked.take();
        while unpacked.pop().is_some() {}
    }

    /// The `index`-th value saved.
    ///
    /// # Errors
    /// [`Error::BackwardTwice`] when the values were released, [`Error::StaleSavedValue`] when it was written since.
    pub fn get(&self, index: usize) -> Result<Array> {
        let slots = self.slots.as_ref().ok_or(Error::BackwardTwice { op: self.op })?;
        match slots.get(index) {
            Some(value) => {
                let array = value.unpack(self.op)?;
                if value.array().is_none() {
                    self.unpacked.borrow_mut().push(array.clone());
                }
                Ok(array)
            }
            None => Err(Error::invalid(self.op, format!("saved {} values, number {index} was asked for", slots.len()))),
        }
    }

    /// How many values were saved.
    pub fn len(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.len())
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Saved<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
