//! Segments: memory of the driver, and reserved address ranges to which memory is mapped piece by piece.

use cudarc::driver::sys;
use memcore::backend::{Operand, Region, SegmentId, SegmentTable};
use memcore::error::{Error, Result};

use crate::driver::{Driven, driven};
use crate::queue::Queue;

/// Every block starts at a multiple of this: the multiple that `cuMemAlloc` promises, and more than a 16-byte access
/// needs.
pub(crate) const ALIGNMENT: u64 = 256;

struct Segment {
    base: u64,
    bytes: u64,
    /// The mapped part of a reservation; `None` for an ordinary segment.
    granules: Option<Granules>,
}

/// The granules of a reservation. Each is mapped with memory of its own, because the driver unmaps only whole mappings.
/// A granule is a page of the allocator, as in PyTorch, which may give back any of them.
struct Granules {
    bytes: u64,
    mapped: Vec<bool>,
}

impl Granules {
    /// The granules of `offset..offset + bytes`.
    fn range(&self, offset: u64, bytes: u64) -> Option<std::ops::Range<usize>> {
        let end = offset.checked_add(bytes)?;
        let whole = bytes > 0 && offset.is_multiple_of(self.bytes) && bytes.is_multiple_of(self.bytes);
        let range = (offset / self.bytes) as usize..(end / self.bytes) as usize;
        (whole && range.end <= self.mapped.len()).then_some(range)
    }

    /// Unmaps granule `i` of the reservation at `base`, if it is mapped.
    fn unmap(&mut self, base: u64, i: usize) -> Driven<()> {
        if !std::mem::replace(&mut self.mapped[i], false) {
            return Ok(());
        }
        driven!(cuMemUnmap(base + i as u64 * self.bytes, self.bytes as usize))
    }
}

#[derive(Default)]
pub(crate) struct Table {
    segments: SegmentTable<Segment>,
}

impl Table {
    /// Takes `bytes` from the driver; `limit_bytes` is the total of the device.
    pub(crate) fn alloc(&mut self, queue: &Queue, bytes: u64, limit_bytes: u64) -> Result<SegmentId> {
        if bytes > limit_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes });
        }
        self.segments.check_room()?;
        let base = queue
            .allocate(bytes)
            .map_err(|error| if error.is_out_of_memory() { full(queue, bytes) } else { error.into() })?;
        self.segments.insert(Segment { base, bytes, granules: None })
    }

    /// Gives a segment back; an unknown id is ignored.
    pub(crate) fn free(&mut self, queue: &Queue, id: SegmentId) {
        let Some(segment) = self.segments.remove(id) else { return };
        // A failure means that the context is lost, with everything in it: the next call reports it.
        let _ = match segment.granules {
            None => queue.free(segment.base),
            Some(granules) => unreserve(queue, segment.base, segment.bytes, granules),
        };
    }

    /// Frees all segments.
    pub(crate) fn clear(&mut self, queue: &Queue) {
        for id in self.segments.ids() {
            self.free(queue, id);
        }
    }

    /// Reserves addresses.
    pub(crate) fn reserve(
        &mut self,
        queue: &Queue,
        device: sys::CUdevice,
        bytes: u64,
        page_bytes: u64,
    ) -> Result<SegmentId> {
        self.segments.check_room()?;
        queue.bind()?;
        let least = granularity(device)?;
        // A page size that the driver cannot map is replaced by the driver's own.
        let granule = if page_bytes > 0 && page_bytes.is_multiple_of(least) { page_bytes } else { least };
        let count = bytes.div_ceil(granule);
        let bytes = count.saturating_mul(granule);
        let mut base = 0;
        driven!(cuMemAddressReserve(&mut base, bytes as usize, 0, 0, 0))?;
        let granules = Granules { bytes: granule, mapped: vec![false; count as usize] };
        self.segments.insert(Segment { base, bytes, granules: Some(granules) })
    }

    /// Maps memory to a reservation: all of it or none.
    pub(crate) fn map(
        &mut self,
        queue: &Queue,
        device: sys::CUdevice,
        id: SegmentId,
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        queue.bind()?;
        let segment = self.segments.get_mut(id)?;
        let (base, len) = (segment.base, segment.bytes);
        let Some(granules) = &mut segment.granules else {
            return Err(Error::invalid("map", format!("{id:?} is not a reservation")));
        };
        let free = |range: &std::ops::Range<usize>| !granules.mapped[range.clone()].contains(&true);
        let Some(range) = granules.range(offset, bytes).filter(free) else {
            let problem = format!(
                "{offset}+{bytes} of a reservation of {len} bytes: pieces are multiples of {} that are not mapped yet",
                granules.bytes
            );
            return Err(Error::invalid("map", problem));
        };
        let mut outcome = Ok(());
        for i in range.clone() {
            outcome = map_granule(device, base + i as u64 * granules.bytes, granules.bytes);
            if outcome.is_err() {
                break;
            }
            granules.mapped[i] = true;
        }
        let access = sys::CUmemAccessDesc {
            location: properties(device).location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let outcome = outcome.and_then(|()| driven!(cuMemSetAccess(base + offset, bytes as usize, &access, 1)));
        outcome.map_err(|error| {
            for i in range {
                // The refusal is reported; a second failure while undoing adds nothing.
                let _ = granules.unmap(base, i);
            }
            if error.is_out_of_memory() { full(queue, bytes) } else { error.into() }
        })
    }

    /// Unmaps all mapped granules of `offset..offset + bytes`.
    pub(crate) fn unmap(&mut self, queue: &Queue, id: SegmentId, offset: u64, bytes: u64) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let base = segment.base;
        let Some(granules) = &mut segment.granules else { return };
        let Some(range) = granules.range(offset, bytes) else { return };
        // Kernels in the queue may use it. A failure means that the context is lost: the next call reports it.
        let _ = queue.synchronize();
        for i in range {
            let _ = granules.unmap(base, i);
        }
    }

    /// The address of `region`, which lies inside its segment.
    pub(crate) fn address(&self, region: Region) -> Result<u64> {
        let segment = self.segments.get(region.segment)?;
        match region.offset.checked_add(region.len) {
            Some(end) if end <= segment.bytes => Ok(segment.base + region.offset),
            _ => {
                let problem = format!("{region:?} lies outside its segment of {} bytes", segment.bytes);
                Err(Error::invalid("region", problem))
            }
        }
    }

    /// The address of an operand; 0 if it has no bytes.
    pub(crate) fn operand(&self, operand: &Operand) -> Result<u64> {
        if operand.region.len == 0 { Ok(0) } else { self.address(operand.region) }
    }
}

/// The error that the device is full now.
fn full(queue: &Queue, requested_bytes: u64) -> Error {
    Error::DeviceFull { requested_bytes, free_bytes: queue.memory_info().ok().map(|(free, _)| free) }
}

/// Location and kind of the granules' memory.
fn properties(device: sys::CUdevice) -> sys::CUmemAllocationProp {
    // SAFETY: a plain struct of numbers and handles, for which zero means none.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties
}

/// Size and address of a granule are multiples of this; 2 MiB on every device so far.
fn granularity(device: sys::CUdevice) -> Driven<u64> {
    let mut bytes = 0;
    let properties = properties(device);
    let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    driven!(cuMemGetAllocationGranularity(&mut bytes, &properties, least))?;
    Ok(bytes.max(1) as u64)
}

/// Maps memory to `at..at + bytes`, which is reserved and unmapped. On failure nothing is mapped.
fn map_granule(device: sys::CUdevice, at: u64, bytes: u64) -> Driven<()> {
    let properties = properties(device);
    let mut handle = 0;
    driven!(cuMemCreate(&mut handle, bytes as usize, &properties, 0))?;
    let mapped = driven!(cuMemMap(at, bytes as usize, 0, handle, 0));
    // The mapping keeps the memory alive; without a mapping, this frees it.
    let released = driven!(cuMemRelease(handle));
    mapped.and(released)
}

/// Unmaps the remaining granules and frees the addresses.
fn unreserve(queue: &Queue, base: u64, bytes: u64, mut granules: Granules) -> Driven<()> {
    queue.synchronize()?;
    for i in 0..granules.mapped.len() {
        granules.unmap(base, i)?;
    }
    driven!(cuMemAddressFree(base, bytes as usize))
}
