//! A backend with less memory than its device has.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::forward::{forward, virtual_memory_of};
use super::{Backend, Bound, DeviceMemory, KernelCall, Limits, MemoryInfo, Region, SegmentId, Tf32, VirtualMemory};
use crate::error::{Error, Result};

/// Limits a device to `capacity` bytes. For example, an 8 GiB card on a 141 GiB one, with the real out-of-memory path.
pub struct Limited<B> {
    inner: B,
    limits: Limits,
    capacity_bytes: u64,
    held: Mutex<HashMap<SegmentId, u64>>,
}

impl<B: Backend> Limited<B> {
    /// Limits `inner` to `capacity_bytes`.
    pub fn new(inner: B, capacity_bytes: u64) -> Self {
        let mut limits = inner.limits().clone();
        limits.max_segment_bytes = limits.max_segment_bytes.min(capacity_bytes);
        Self { inner, limits, capacity_bytes, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<SegmentId, u64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self, held: &HashMap<SegmentId, u64>, bytes: u64) -> Result<()> {
        let free = self.capacity_bytes - held.values().sum::<u64>();
        if bytes > free { Err(Error::DeviceFull { requested_bytes: bytes, free_bytes: Some(free) }) } else { Ok(()) }
    }
}

impl<B: Backend> DeviceMemory for Limited<B> {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        if bytes > self.limits.max_segment_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes: self.limits.max_segment_bytes });
        }
        let mut held = self.held();
        self.room(&held, bytes)?;
        let id = self.inner.alloc_segment(bytes)?;
        held.insert(id, bytes);
        Ok(id)
    }

    fn free_segment(&self, id: SegmentId) {
        self.inner.free_segment(id);
        self.held().remove(&id);
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let free = self.capacity_bytes - self.held().values().sum::<u64>();
        let free_bytes = self.inner.memory_info().map_or(free, |info| free.min(info.free_bytes));
        Some(MemoryInfo { free_bytes, total_bytes: self.capacity_bytes })
    }

    fn host_memory(&self) -> bool {
        self.inner.host_memory()
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.inner.virtual_memory().is_some().then_some(self as &dyn VirtualMemory)
    }
}

impl<B: Backend> VirtualMemory for Limited<B> {
    fn reserve(&self, bytes: u64, page_bytes: u64) -> Result<SegmentId> {
        let id = virtual_memory_of(&self.inner)?.reserve(bytes, page_bytes)?;
        self.held().insert(id, 0);
        Ok(id)
    }

    fn map(&self, id: SegmentId, offset: u64, bytes: u64) -> Result<()> {
        let mut held = self.held();
        self.room(&held, bytes)?;
        virtual_memory_of(&self.inner)?.map(id, offset, bytes)?;
        *held.entry(id).or_default() += bytes;
        Ok(())
    }

    fn unmap(&self, id: SegmentId, offset: u64, bytes: u64) {
        if let Ok(inner) = virtual_memory_of(&self.inner) {
            inner.unmap(id, offset, bytes);
        }
        if let Some(held) = self.held().get_mut(&id) {
            *held -= bytes;
        }
    }

    fn release(&self, id: SegmentId) {
        if let Ok(inner) = virtual_memory_of(&self.inner) {
            inner.release(id);
        }
        self.held().remove(&id);
    }
}

impl<B: Backend> Backend for Limited<B> {
    forward! { self => self.inner;
        fn name() -> &str;
        fn device_name() -> String;
        fn computes() -> bool;
        fn how_it_copies() -> Option<&'static str>;
        fn upload(src: &[u8], dst: Region) -> Result<()>;
        fn download(src: Region, dst: &mut [u8]) -> Result<()>;
        fn launch(call: &KernelCall) -> Result<()>;
        fn synchronize() -> Result<()>;
        fn supports(call: &KernelCall) -> bool;
        fn workspace_bytes(call: &KernelCall) -> u64;
        fn scratch_bytes() -> u64;
        fn roof(bound: Bound, seconds: f64) -> Option<f64>;
        fn gemm_workspace_bytes() -> u64;
        fn use_graphs() -> Result<()>;
        fn allow_tf32(which: Tf32) -> Result<()>;
    }
    // `overheads` stays empty: the limited device counts only segments.
}
