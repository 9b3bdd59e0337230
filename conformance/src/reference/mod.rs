//! The reference backend: every kernel as plain, obviously right f64 code.
//!
//! Operands are read through their strides into vectors, and each kernel's formula is evaluated in f64 as documented in
//! `memcore::backend::kernel`. Results are converted back with one rounding. Nothing here is fast. Fresh memory is
//! poisoned. Families and files are those of the contract.

mod attention;
mod conv;
mod elementwise;
mod index;
mod loss;
mod matmul;
mod memory;
mod norm;
mod number;
mod optim;
mod pool;
mod quant;
mod random;
mod reduce;
mod softmax;
mod special;
#[cfg(test)]
mod testing;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::backend::{Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Operand, Region, SegmentId};
use memcore::{DType, Error, Result};

pub(crate) use memory::{Memory, POISON, positions};
pub(crate) use number::{Number, load, rounded, spacing, store};

/// A backend whose kernels are plain f64 code: every other backend is compared with it.
pub struct Reference {
    limits: Limits,
    capacity_bytes: u64,
    memory: Mutex<Memory>,
}

impl Reference {
    /// Creates a device of `capacity_bytes`, whose largest segment is half of that.
    pub fn new(capacity_bytes: u64) -> Self {
        let limits = Limits {
            alignment: 64,
            max_segment_bytes: capacity_bytes / 2,
            max_binding_bytes: u64::MAX,
            dtypes: DType::ALL.to_vec(),
        };
        Self { limits, capacity_bytes, memory: Mutex::default() }
    }

    /// Creates a device that also keeps 16-bit results before rounding.
    pub fn keeping_unrounded() -> Self {
        let reference = Self::default();
        reference.memory().unrounded = Some(HashMap::new());
        reference
    }

    /// The values written to `x`, an operand of 16-bit floats, in row-major order, before rounding; NaN for elements
    /// that no kernel wrote. `None` unless this is [`keeping_unrounded`](Self::keeping_unrounded).
    pub fn unrounded(&self, x: &Operand) -> Option<Vec<f64>> {
        self.memory().unrounded(x)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Reference {
    fn default() -> Self {
        Self::new(4 << 30)
    }
}

impl DeviceMemory for Reference {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        if bytes > self.limits.max_segment_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes: self.limits.max_segment_bytes });
        }
        let mut memory = self.memory();
        let free = self.capacity_bytes - memory.used;
        if bytes > free {
            return Err(Error::DeviceFull { requested_bytes: bytes, free_bytes: Some(free) });
        }
        memory.next += 1;
        memory.used += bytes;
        let id = SegmentId(memory.next);
        memory.segments.insert(id, vec![POISON; bytes as usize]);
        if let Some(unrounded) = &mut memory.unrounded {
            unrounded.insert(id, vec![f64::NAN; bytes.div_ceil(2) as usize]);
        }
        Ok(id)
    }

    fn free_segment(&self, id: SegmentId) {
        let mut memory = self.memory();
        if let Some(segment) = memory.segments.remove(&id) {
            memory.used -= segment.len() as u64;
        }
        if let Some(unrounded) = &mut memory.unrounded {
            unrounded.remove(&id);
        }
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let used = self.memory().used;
        Some(MemoryInfo { free_bytes: self.capacity_bytes - used, total_bytes: self.capacity_bytes })
    }
}

impl Backend for Reference {
    fn name(&self) -> &str {
        "reference"
    }

    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        if src.len() as u64 != dst.len {
            return Err(Error::invalid("upload", format!("{} bytes into {dst:?}", src.len())));
        }
        self.memory().bytes_mut(dst)?.copy_from_slice(src);
        Ok(())
    }

    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        if dst.len() as u64 != src.len {
            return Err(Error::invalid("download", format!("{src:?} into {} bytes", dst.len())));
        }
        dst.copy_from_slice(self.memory().bytes(src)?);
        Ok(())
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        let m = &mut *self.memory();
        memcore::by_family!(call, m)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
