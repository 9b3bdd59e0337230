//! The variables of PyTorch's functions, which decide how long a temporary lives.

use std::ops::Deref;

use crate::array::Array;
use crate::context;
use crate::error::Result;

/// Local variables of a function in Python. Each keeps its value until the next one exists; when the function returns, they go in the order of their
/// first assignment.
pub struct Locals<T>(Vec<(&'static str, Option<T>)>);

impl<T: Clone> Locals<T> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// `name = value`. Returns the value.
    pub(super) fn set(&mut self, name: &'static str, value: T) -> T {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, slot)) => *slot = Some(value.clone()),
            None => self.0.push((name, Some(value.clone()))),
        }
        value
    }

    /// The value of a name.
    pub(super) fn get(&self, name: &'static str) -> Option<T> {
        self.0.iter().find(|(known, _)| *known == name)?.1.clone()
    }

    /// `del name`.
    pub(super) fn delete(&mut self, name: &'static str) {
        if let Some((_, slot)) = self.0.iter_mut().find(|(known, _)| *known == name) {
            *slot = None;
        }
    }
}

impl<T> Drop for Locals<T> {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|(_, slot)| *slot = None);
    }
}

/// A list of arrays. Python frees a list from its end.
#[derive(Clone)]
pub struct List(Vec<Array>);

impl List {
    /// A list of what `make` makes of each array, attributed to the operator `name`.
    pub(super) fn made(&self, name: &'static str, make: impl Fn(&Array) -> Result<Array>) -> Result<Self> {
        let _op = context::op(name);
        self.0.iter().map(make).collect()
    }
}

impl FromIterator<Array> for List {
    fn from_iter<I: IntoIterator<Item = Array>>(arrays: I) -> Self {
        Self(arrays.into_iter().collect())
    }
}

impl Deref for List {
    type Target = [Array];

    fn deref(&self) -> &[Array] {
        &self.0
    }
}

impl Drop for List {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
