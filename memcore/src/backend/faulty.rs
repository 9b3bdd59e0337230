//! A backend that fails on demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::forward::{forward, virtual_memory_of};
use super::{
    Backend, Bound, DeviceMemory, KernelCall, Limits, MemoryInfo, Overhead, Region, SegmentId, Tf32, VirtualMemory,
};
use crate::error::{Error, Result};

/// The kind of calls that [`Faulty`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum FaultyCall {
    /// Segments and mapped pages: the n-th is refused as if the device were full.
    AllocSegment,
    /// Kernels: the n-th fails with a backend error.
    Launch,
    /// Copies from and to the host: the n-th fails with a backend error.
    Copy,
}

/// Fails the n-th call of one kind (counted from 0) and passes all others on.
#[doc(hidden)]
pub struct Faulty<B> {
    inner: B,
    kind: FaultyCall,
    fail_at: u64,
    /// Number of consecutive calls that fail from there on.
    times: u64,
    calls: AtomicU64,
}

impl<B: Backend> Faulty<B> {
    /// Fails call number `fail_at` of `kind` and the `times − 1` calls after it. A caching allocator asks again after
    /// emptying its cache, so an allocation fails only after two failures in a row.
    pub fn new(inner: B, kind: FaultyCall, fail_at: u64, times: u64) -> Self {
        Self { inner, kind, fail_at, times, calls: AtomicU64::new(0) }
    }

    /// Number of calls of the counted kind so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    fn fails(&self, kind: FaultyCall) -> bool {
        self.kind == kind && {
            let call = self.calls.fetch_add(1, Relaxed);
            call >= self.fail_at && call - self.fail_at < self.times
        }
    }
}

impl<B: Backend> Faulty<B> {
    fn check_copy(&self, way: &str) -> Result<()> {
        if self.fails(FaultyCall::Copy) {
            return Err(Error::backend(self.inner.name(), format!("copy {way} the device failed on demand")));
        }
        Ok(())
    }
}

impl<B: Backend> DeviceMemory for Faulty<B> {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        if self.fails(FaultyCall::AllocSegment) {
            return Err(Error::DeviceFull { requested_bytes: bytes, free_bytes: Some(0) });
        }
        self.inner.alloc_segment(bytes)
    }
    fn free_segment(&self, id: SegmentId) {
        self.inner.free_segment(id);
    }
    fn memory_info(&self) -> Option<MemoryInfo> {
        self.inner.memory_info()
    }
    fn host_memory(&self) -> bool {
        self.inner.host_memory()
    }
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.inner.virtual_memory().is_some().then_some(self as &dyn VirtualMemory)
    }
}

impl<B: Backend> VirtualMemory for Faulty<B> {
    fn reserve(&self, bytes: u64, page_bytes: u64) -> Result<SegmentId> {
        virtual_memory_of(&self.inner)?.reserve(bytes, page_bytes)
    }
    fn map(&self, id: SegmentId, offset: u64, bytes: u64) -> Result<()> {
        if self.fails(FaultyCall::AllocSegment) {
            return Err(Error::DeviceFull { requested_bytes: bytes, free_bytes: Some(0) });
        }
        virtual_memory_of(&self.inner)?.map(id, offset, bytes)
    }
    fn unmap(&self, id: SegmentId, offset: u64, bytes: u64) {
        if let Ok(inner) = virtual_memory_of(&self.inner) {
            inner.unmap(id, offset, bytes);
        }
    }
    fn release(&self, id: SegmentId) {
        if let Ok(inner) = virtual_memory_of(&self.inner) {
            inner.release(id);
        }
    }
}

impl<B: Backend> Backend for Faulty<B> {
    forward! { self => self.inner;
        fn name() -> &str;
        fn device_name() -> String;
        fn computes() -> bool;
        fn how_it_copies() -> Option<&'static str>;
        fn synchronize() -> Result<()>;
        fn supports(call: &KernelCall) -> bool;
        fn workspace_bytes(call: &KernelCall) -> u64;
        fn scratch_bytes() -> u64;
        fn roof(bound: Bound, seconds: f64) -> Option<f64>;
        fn gemm_workspace_bytes() -> u64;
        fn use_graphs() -> Result<()>;
        fn allow_tf32(which: Tf32) -> Result<()>;
        fn overheads() -> Vec<Overhead>;
    }
    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        self.check_copy("to")?;
        self.inner.upload(src, dst)
    }
    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        self.check_copy("from")?;
        self.inner.download(src, dst)
    }
    fn launch(&self, call: &KernelCall) -> Result<()> {
        if self.fails(FaultyCall::Launch) {
            return Err(Error::backend(self.name(), format!("kernel {} failed on demand", call.name())));
        }
        self.inner.launch(call)
    }
}
