//! Fills of single elements that follow each other, to be launched together: a fused optimizer sets a counter for each of its parameters.
//!
//! They wait until something else is queued, or the host waits for the queue.

use memcore::{Error, Result};

use crate::kernel::Tag;

/// Single elements that one launch fills.
pub(crate) const MOST: usize = 120;

/// Addresses, all of them different, and what is to be there.
pub(crate) type Elements = Vec<(u64, u64)>;

/// Fills that wait.
#[derive(Default)]
pub(crate) struct Fills {
    /// The width of the elements.
    tag: Option<Tag>,
    elements: Elements,
    /// An error from a call that could not return one.
    failed: Option<Error>,
}

impl Fills {
    /// True if an element of this width at this address can wait with the others.
    pub(crate) fn has_room_for(&self, tag: Tag, address: u64) -> bool {
        let is_known = || self.elements.iter().any(|(other, _)| *other == address);
        self.elements.is_empty() || (self.tag == Some(tag) && self.elements.len() < MOST && !is_known())
    }

    /// Lets an element wait for which there is room.
    pub(crate) fn push(&mut self, tag: Tag, address: u64, bits: u64) {
        self.tag = Some(tag);
        self.elements.push((address, bits));
    }

    /// Takes what waits, if anything does.
    ///
    /// # Errors
    /// A failure since the last call. What waited is then dropped.
    pub(crate) fn take(&mut self) -> Result<Option<(Tag, Elements)>> {
        let elements = std::mem::take(&mut self.elements);
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self.tag.filter(|_| !elements.is_empty()).map(|tag| (tag, elements))),
        }
    }

    /// Keeps an error for the next call.
    pub(crate) fn fail(&mut self, error: Error) {
        self.failed = Some(error);
    }
}
