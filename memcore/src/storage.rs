//! A block of device memory, shared by its views: it returns to its device when the last view is dropped.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::backend::{Region, SegmentId};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{AllocId, Block, Category};

/// Memory of one tensor and its views.
///
/// ```
/// use memcore::prelude::*;
///
/// # fn main() -> Result<()> {
/// let device = Device::meta("native")?;
/// let matrix = Array::empty(&device, &[64, 64], DType::F32)?;
/// let row = matrix.narrow(0, 3, 1)?;
/// assert_eq!(row.storage().alloc_id(), matrix.storage().alloc_id());
/// drop(matrix);
/// // One row keeps the whole block.
/// assert_eq!(device.usage().allocated_bytes(), 64 * 64 * 4);
/// drop(row);
/// assert_eq!(device.usage().allocated_bytes(), 0);
/// # Ok(())
/// # }
/// ```
///
/// Dropping it takes the device's lock: never drop one while holding it.
pub struct Storage {
    device: Device,
    memory: Memory,
    category: AtomicU8,
    /// Number of autograd nodes that saved this for their backward.
    savers: AtomicU32,
    /// Incremented by every write in place.
    version: AtomicU32,
    /// Which elements leaves keep as their gradients, where these are views.
    claims: OnceLock<Box<Claims>>,
}

type Claims = Mutex<Vec<Range<usize>>>;

/// The memory of a storage.
enum Memory {
    /// Present as long as the storage lives; `None` for an empty storage, which takes no memory.
    Fixed(Option<(Block, AllocId)>),
    /// Present only between `acquire` and `release`.
    Resizable { bytes: u64, now: Mutex<Option<(Block, AllocId)>> },
}

impl Memory {
    /// Reads the current block. A fixed block is not copied: every operand of every kernel is read here.
    fn read<T>(&self, of: impl FnOnce(&Block, AllocId) -> T) -> Option<T> {
        match self {
            Memory::Fixed(memory) => memory.as_ref().map(|(block, id)| of(block, *id)),
            Memory::Resizable { now, .. } => {
                let now = now.lock().unwrap_or_else(PoisonError::into_inner);
                now.as_ref().map(|(block, id)| of(block, *id))
            }
        }
    }
}

impl Storage {
    pub(crate) fn new(device: Device, block: Option<(Block, AllocId)>, category: Category) -> Self {
        Self::with(device, Memory::Fixed(block), category)
    }

    /// Creates a storage of `bytes` without memory until [`Storage::acquire`] takes it.
    pub(crate) fn resizable(device: Device, bytes: u64, category: Category) -> Self {
        Self::with(device, Memory::Resizable { bytes, now: Mutex::new(None) }, category)
    }

    fn with(device: Device, memory: Memory, category: Category) -> Self {
        Self {
            device,
            memory,
            category: AtomicU8::new(category as u8),
            savers: AtomicU32::new(0),
            version: AtomicU32::new(0),
            claims: OnceLock::new(),
        }
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its memory; an empty region for an empty storage, and for one without memory now.
    pub fn region(&self) -> Region {
        self.memory.read(|block, _| block.region).unwrap_or(Region { segment: SegmentId(0), offset: 0, len: 0 })
    }

    /// Id of its allocation; `None` for an empty storage, and for one without memory now.
    pub fn alloc_id(&self) -> Option<AllocId> {
        self.memory.read(|_, id| id)
    }

    /// Bytes requested.
    pub fn requested_bytes(&self) -> u64 {
        self.memory.read(|block, _| block.requested_bytes).unwrap_or(0)
    }

    /// Takes the memory of a storage that was created without ([`Array::unbacked`](crate::Array::unbacked)); its
    /// contents are garbage. Returns true if it took memory, false if the memory was there already. This is PyTorch's
    /// `storage.resize_(n)`, with which FSDP gathers sharded parameters.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Invalid`] for a storage whose memory is fixed.
    #[doc(hidden)]
    pub fn acquire(&self) -> Result<bool> {
        let Memory::Resizable { bytes, now } = &self.memory else { return Err(fixed("acquire")) };
        let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_some() || *bytes == 0 {
            return Ok(false);
        }
        *now = Some(self.device.allocate(*bytes, self.category())?);
        Ok(true)
    }

    /// Frees the memory until the next [`Storage::acquire`]: PyTorch's `storage.resize_(0)`. Views stay valid, but a
    /// kernel is refused if it is given one before then. Returns true if there was memory to free.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a storage whose memory is fixed.
    pub fn release(&self) -> Result<bool> {
        let Memory::Resizable { now, .. } = &self.memory else { return Err(fixed("release")) };
        let released = now.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((block, id)) = released {
            self.device.free(block, id);
        }
        Ok(released.is_some())
    }

    /// The role of the memory.
    pub fn category(&self) -> Category {
        Category::ALL[self.category.load(Relaxed) as usize]
    }

    /// Changes the role of the memory.
    pub(crate) fn set_category(&self, to: Category) {
        if self.category.swap(to as u8, Relaxed) != to as u8
            && let Some(id) = self.alloc_id()
        {
            self.device.retag(id, to);
        }
    }

    /// A leaf wants to keep these elements as its gradient: whether no other leaf has any of them.
    pub(crate) fn claim(&self, part: Range<usize>) -> bool {
        let is_first = self.claims.get().is_none();
        // One that is a gradient as a whole has no claims.
        if is_first && self.category() == Category::Gradient {
            return false;
        }
        let mut claims = self.claims.get_or_init(Box::default).lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = claims.iter().all(|other| other.end <= part.start || part.end <= other.start);
        if is_free {
            claims.push(part);
        }
        is_free
    }

    /// Number of writes in place so far.
    pub fn version(&self) -> u32 {
        self.version.load(Relaxed)
    }

    /// Records a write in place.
    pub(crate) fn bump_version(&self) {
        self.version.fetch_add(1, Relaxed);
    }

    /// Counts a node that saved this. A temporary becomes an activation.
    pub(crate) fn add_saver(&self) {
        if self.savers.fetch_add(1, Relaxed) == 0 && self.category() == Category::Temporary {
            self.set_category(Category::Activation);
        }
    }

    /// Removes a node that saved this. With `last_owner` the storage is about to be dropped, so that its category does
    /// not matter any more.
    pub(crate) fn remove_saver(&self, last_owner: bool) {
        if self.savers.fetch_sub(1, Relaxed) == 1 && !last_owner && self.category() == Category::Activation {
            self.set_category(Category::Temporary);
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some((block, id)) = self.memory.read(|block, id| (*block, id)) {
            self.device.free(block, id);
        }
    }
}

fn fixed(op: &'static str) -> Error {
    Error::invalid(op, "the memory of this storage is there for as long as the storage is")
}
