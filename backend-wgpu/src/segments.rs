//! Segments: each is one buffer.

use memcore::backend::{Region, SegmentId};
use memcore::error::{Error, Result};
use rustc_hash::FxHashMap;
use wgpu::{Buffer, BufferDescriptor, BufferUsages, ErrorFilter};

use crate::gpu::Gpu;

/// Bindings are whole quads of words, so sizes of buffers are too.
const GRANULE: u64 = 16;

/// A buffer, and the size that was asked for.
pub(crate) struct Segment {
    pub(crate) buffer: Buffer,
    bytes: u64,
}

/// All live segments.
#[derive(Default)]
pub(crate) struct Segments {
    live: FxHashMap<SegmentId, Segment>,
    last: u32,
    held_bytes: u64,
}

/// Usages of segments and of other buffers that kernels use.
pub(crate) const STORAGE: BufferUsages =
    BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

impl Segments {
    /// Takes `bytes` from the driver; the caller has checked them against the limits.
    pub(crate) fn alloc(&mut self, gpu: &Gpu, bytes: u64) -> Result<SegmentId> {
        let size = bytes.next_multiple_of(GRANULE);
        let full = gpu.device.push_error_scope(ErrorFilter::OutOfMemory);
        let invalid = gpu.device.push_error_scope(ErrorFilter::Validation);
        let descriptor = BufferDescriptor { label: Some("segment"), size, usage: STORAGE, mapped_at_creation: false };
        let buffer = gpu.device.create_buffer(&descriptor);
        let invalid = pollster::block_on(invalid.pop());
        let full = pollster::block_on(full.pop());
        if let Some(error) = invalid {
            return Err(gpu.error(crate::gpu::one_line(&error.to_string())));
        }
        if full.is_some() {
            let free_bytes = crate::driver::memory_info(gpu, self.held_bytes).map(|info| info.free_bytes);
            return Err(Error::DeviceFull { requested_bytes: bytes, free_bytes });
        }
        self.last = self.last.wrapping_add(1);
        let id = SegmentId(self.last);
        self.held_bytes += bytes;
        self.live.insert(id, Segment { buffer, bytes });
        Ok(id)
    }

    /// Removes a segment from the table.
    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<Buffer> {
        let segment = self.live.remove(&id)?;
        self.held_bytes -= segment.bytes;
        Some(segment.buffer)
    }

    pub(crate) fn contains(&self, id: SegmentId) -> bool {
        self.live.contains_key(&id)
    }

    /// Bytes of all live segments.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Returns the buffer of a region.
    pub(crate) fn buffer(&self, region: Region) -> Result<&Buffer> {
        let segment = self.live.get(&region.segment).ok_or(Error::UnknownSegment(region.segment))?;
        match region.offset.checked_add(region.len) {
            Some(end) if end <= segment.bytes => Ok(&segment.buffer),
            _ => {
                Err(Error::invalid("region", format!("{region:?} lies outside its segment of {} bytes", segment.bytes)))
            }
        }
    }
}
