//! A block of device memory with one owner count: it returns to its device when the last view is dropped.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::backend::{Region, SegmentId};
use crate::device::Device;
use crate::memory::{AllocId, Block, Category};

/// Memory of one tensor and its views.
///
/// Dropping it takes the device's lock: never drop one while holding it.
pub struct Storage {
    device: Device,
    /// `None` for an empty storage, which takes no memory.
    block: Option<(Block, AllocId)>,
    category: AtomicU8,
    /// How many autograd nodes keep this for their backward.
    savers: AtomicU32,
    /// Bumped by every write in place.
    version: AtomicU32,
}

impl Storage {
    pub(crate) fn new(device: Device, block: Option<(Block, AllocId)>, category: Category) -> Self {
        Self {
            device,
            block,
            category: AtomicU8::new(category as u8),
            savers: AtomicU32::new(0),
            version: AtomicU32::new(0),
        }
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where it lies; an empty region for an empty storage.
    pub fn region(&self) -> Region {
        self.block.as_ref().map_or(Region { segment: SegmentId(0), offset: 0, len: 0 }, |(block, _)| block.region)
    }

    /// Which allocation this is; `None` for an empty storage.
    pub fn alloc_id(&self) -> Option<AllocId> {
        self.block.as_ref().map(|(_, id)| *id)
    }

    /// Bytes that were asked for.
    pub fn requested_bytes(&self) -> u64 {
        self.block.as_ref().map_or(0, |(block, _)| block.requested_bytes)
    }

    /// What the memory is for.
    pub fn category(&self) -> Category {
        Category::ALL[self.category.load(Relaxed) as usize]
    }

    /// Says what the memory is for, from now on.
    pub fn set_category(&self, to: Category) {
        if self.category.swap(to as u8, Relaxed) != to as u8
            && let Some((_, id)) = &self.block
        {
            self.device.retag(*id, to);
        }
    }

    /// Writes in place so far.
    pub fn version(&self) -> u32 {
        self.version.load(Relaxed)
    }

    /// Records a write in place.
    pub(crate) fn bump_version(&self) {
        self.version.fetch_add(1, Relaxed);
    }

    /// A node keeps it: what was a temporary is an activation now.
    pub(crate) fn add_saver(&self) {
        if self.savers.fetch_add(1, Relaxed) == 0 && self.category() == Category::Temporary {
            self.set_category(Category::Activation);
        }
    }

    /// A node lets go. `last_owner` says that the storage is about to be dropped, so that nobody cares any more.
    pub(crate) fn remove_saver(&self, last_owner: bool) {
        if self.savers.fetch_sub(1, Relaxed) == 1 && !last_owner && self.category() == Category::Activation {
            self.set_category(Category::Temporary);
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some((block, id)) = self.block.take() {
            self.device.free(block, id);
        }
    }
}
