//! Values that a node saves for its backward.

use std::cell::RefCell;
use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;

use super::hooks::{self, Packed, SavedHooks};
use crate::array::Array;
use crate::context;
use crate::error::{Error, Result};

/// A value that a node saved, with its role in that node.
pub struct SavedValue {
    role: &'static str,
    kept: Kept,
}

enum Kept {
    /// The array, and the version of its storage when it was saved.
    Array(Array, u32),
    /// The value that a hook packed, and the address of the original storage, which serves only to tell storages apart.
    Packed(Arc<dyn SavedHooks>, Packed, usize),
}

impl SavedValue {
    /// Saves `array`, through the installed hooks.
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

    /// Saves `array` itself, whatever hooks are installed.
    pub(super) fn keep(role: &'static str, array: Array) -> Self {
        array.storage().add_saver();
        let version = array.storage().version();
        Self { role, kept: Kept::Array(array, version) }
    }

    /// The value's role in the node: `input`, `weight`, `result`, …
    pub fn role(&self) -> &'static str {
        self.role
    }

    /// The array; `None` if a hook packed it.
    pub fn array(&self) -> Option<&Array> {
        match &self.kept {
            Kept::Array(array, _) => Some(array),
            Kept::Packed(..) => None,
        }
    }

    /// Whether this is `array`, packed by a hook.
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

/// The saved values of a node; `None` after their release. Kept outside the node: values are large, most nodes have
/// few, and all are moved out at the release.
pub(super) type Slots = Option<Vec<SavedValue>>;

/// The saved values of a node, as its backward function sees them.
pub struct Saved<'a> {
    op: &'static str,
    slots: MutexGuard<'a, Slots>,
    /// Arrays that hooks recreated, each at its value's place. They live as long as the backward function, like local variables in PyTorch's.
    unpacked: RefCell<SmallVec<[Option<Array>; 2]>>,
}

impl<'a> Saved<'a> {
    /// The saved values of a node called `op`. Those that a hook packed are unpacked here: PyTorch's functions begin so, in the order of their names.
    pub(super) fn new(op: &'static str, slots: MutexGuard<'a, Slots>) -> Result<Self> {
        let saved = Self { op, slots, unpacked: RefCell::default() };
        let is_packed = |value: &SavedValue| value.array().is_none();
        if !saved.slots.iter().flatten().any(is_packed) {
            return Ok(saved);
        }
        for value in saved.slots.iter().flatten() {
            let array = if is_packed(value) { Some(value.unpack(op)?) } else { None };
            saved.unpacked.borrow_mut().push(array);
        }
        Ok(saved)
    }

    /// Drops the arrays that hooks recreated. PyTorch's engine treats gradients after that (for example, summing a
    /// broadcast away).
    pub fn done(&self) {
        let _function = context::function();
        self.release();
    }

    /// Drops in the reverse order of creation, as C++ destroys a function's variables.
    fn release(&self) {
        let mut unpacked = self.unpacked.take();
        while unpacked.pop().is_some() {}
    }

    /// Returns the saved value at `index`.
    ///
    /// # Errors
    /// [`Error::BackwardTwice`] if the values were released, [`Error::StaleSavedValue`] if the value was overwritten
    /// since it was saved.
    pub fn get(&self, index: usize) -> Result<Array> {
        let slots = self.slots.as_ref().ok_or(Error::BackwardTwice { op: self.op })?;
        match slots.get(index) {
            Some(value) => {
                let unpacked = self.unpacked.borrow().get(index).cloned().flatten();
                unpacked.map_or_else(|| value.unpack(self.op), Ok)
            }
            None => Err(Error::invalid(self.op, format!("saved {} values, number {index} was asked for", slots.len()))),
        }
    }

    /// Number of saved values.
    pub fn len(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.len())
    }

    /// Whether no value was saved.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Saved<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
