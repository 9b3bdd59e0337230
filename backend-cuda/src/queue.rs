//! The one queue of a device: its context, its stream, and everything in order there besides launches.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

use crate::driver::{Driven, driven};
use crate::staging::Staging;

/// The device's primary context and one stream in it: the one queue.
pub(crate) struct Queue {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Created at the first copy to the device.
    staging: Mutex<Option<Staging>>,
}

// SAFETY: the driver's handles may be used from any thread; each use makes the context current on its own thread first.
unsafe impl Send for Queue {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new(device: sys::CUdevice) -> Driven<Self> {
        let mut context = std::ptr::null_mut();
        driven!(cuDevicePrimaryCtxRetain(&mut context, device))?;
        let mut queue = Self { device, context, stream: std::ptr::null_mut(), staging: Mutex::default() };
        queue.bind()?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        driven!(cuStreamCreate(&mut queue.stream, flags))?;
        Ok(queue)
    }

    /// Makes the context current on this thread.
    pub(crate) fn bind(&self) -> Driven<()> {
        driven!(cuCtxSetCurrent(self.context))
    }

    /// The stream, for libraries.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Waits until everything queued is done.
    pub(crate) fn synchronize(&self) -> Driven<()> {
        self.bind()?;
        driven!(cuStreamSynchronize(self.stream))
    }

    /// Free and total memory, as the driver reports them.
    pub(crate) fn memory_info(&self) -> Driven<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        driven!(cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Driven<u64> {
        self.bind()?;
        let mut pointer = 0;
        driven!(cuMemAlloc_v2(&mut pointer, bytes as usize))?;
        Ok(pointer)
    }

    /// Frees memory. Waits for the queue first, since queued work may use the memory.
    pub(crate) fn free(&self, pointer: u64) -> Driven<()> {
        self.synchronize()?;
        driven!(cuMemFree_v2(pointer))
    }

    /// Copies to the device, in the queue. The source may be reused on return.
    ///
    /// # Safety
    /// `to..to + from.len()` is device memory.
    pub(crate) unsafe fn upload(&self, from: &[u8], to: u64) -> Driven<()> {
        self.bind()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.is_none() {
            *staging = Staging::new().ok();
        }
        if let Some(staging) = &mut *staging {
            // SAFETY: the caller's promise.
            return unsafe { staging.upload(from, to, self.stream) };
        }
        // Without pinned memory: waits for the copy, before the caller may reuse the source.
        driven!(cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast::<c_void>(), from.len(), self.stream))?;
        driven!(cuStreamSynchronize(self.stream))
    }

    /// Copies to the host after everything queued, and waits for it.
    ///
    /// # Safety
    /// `from..from + to.len()` is device memory.
    pub(crate) unsafe fn download(&self, from: u64, to: &mut [u8]) -> Driven<()> {
        self.bind()?;
        driven!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast::<c_void>(), from, to.len(), self.stream))?;
        driven!(cuStreamSynchronize(self.stream))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A failure here cannot be reported: the device is lost or the process ends.
        let _ = self.bind();
        if !self.stream.is_null() {
            let _ = driven!(cuStreamSynchronize(self.stream));
            *self.staging.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
            let _ = driven!(cuStreamDestroy_v2(self.stream));
        }
        let _ = driven!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}
