//! Segments: anonymous pages of the host, committed when they are first touched.

use memcore::backend::{MemoryInfo, Region, SegmentId, SegmentTable};
use memcore::error::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};

use crate::os;

/// Alignment of blocks: a cache line, and the widest vector.
pub(crate) const ALIGNMENT: u64 = 64;

/// Size from which segments are backed by huge pages if the system has them: one fault per 2 MiB instead of one per 4 KiB, and fewer TLB
/// misses.
const HUGE_BYTES: u64 = 2 << 20;

/// Bytes that may be handed out before the system is asked again for its free memory.
const RECHECK_BYTES: u64 = 64 << 20;

struct Segment {
    pages: MmapRaw,
    /// Bytes that may be touched: all of an ordinary segment, the mapped part of a reserved one.
    held_bytes: u64,
}

pub(crate) struct Table {
    segments: SegmentTable<Segment>,
    held_bytes: u64,
    /// Bytes handed out since the system was last asked.
    unchecked_bytes: u64,
    /// Largest size of a segment.
    pub(crate) max_segment_bytes: u64,
}

impl Table {
    pub(crate) fn new() -> Self {
        let max_segment_bytes = os::memory_info().map_or(isize::MAX as u64, |info| info.total_bytes);
        Self {
            segments: SegmentTable::default(),
            held_bytes: 0,
            // So that the first allocation asks the system.
            unchecked_bytes: RECHECK_BYTES,
            max_segment_bytes,
        }
    }

    /// Allocates `bytes` from the system.
    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<SegmentId> {
        if bytes > self.max_segment_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes: self.max_segment_bytes });
        }
        self.check_room(bytes)?;
        let pages = map_pages(bytes)?;
        self.insert(pages, bytes)
    }

    /// Reserves addresses without memory. Pages that nothing touches take none.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<SegmentId> {
        let pages = map_pages(bytes)?;
        self.insert(pages, 0)
    }

    /// Counts `bytes` more as usable in a reserved segment.
    pub(crate) fn map(&mut self, id: SegmentId, offset: u64, bytes: u64) -> Result<()> {
        let len = self.segments.get(id)?.pages.len() as u64;
        if offset.checked_add(bytes).is_none_or(|end| end > len) {
            return Err(Error::invalid("map", format!("{offset}+{bytes} lies outside a reservation of {len} bytes")));
        }
        self.check_room(bytes)?;
        self.segments.get_mut(id)?.held_bytes += bytes;
        self.held_bytes += bytes;
        Ok(())
    }

    /// Returns the pages of `offset..offset + bytes` to the system.
    pub(crate) fn unmap(&mut self, id: SegmentId, offset: u64, bytes: u64) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let bytes = bytes.min(segment.held_bytes);
        segment.held_bytes -= bytes;
        discard(&segment.pages, offset, bytes);
        self.held_bytes -= bytes;
    }

    /// Frees a segment. An unknown id is ignored.
    pub(crate) fn free(&mut self, id: SegmentId) {
        if let Some(segment) = self.segments.remove(id) {
            self.held_bytes -= segment.held_bytes;
        }
    }

    /// Returns free and total bytes. Memory that this process holds but has not touched yet does not count as free.
    pub(crate) fn memory_info(&self) -> Option<MemoryInfo> {
        let info = os::memory_info()?;
        let untouched = self.held_bytes.saturating_sub(os::resident_bytes().unwrap_or(0));
        Some(MemoryInfo { free_bytes: info.free_bytes.saturating_sub(untouched), ..info })
    }

    /// Returns the address of `region`, which must lie inside its segment.
    pub(crate) fn address(&self, region: Region) -> Result<*mut u8> {
        let segment = self.segments.get(region.segment)?;
        match region.offset.checked_add(region.len) {
            Some(end) if end <= segment.pages.len() as u64 => {
                Ok(segment.pages.as_mut_ptr().wrapping_add(region.offset as usize))
            }
            _ => Err(Error::invalid(
                "region",
                format!("{region:?} lies outside its segment of {} bytes", segment.pages.len()),
            )),
        }
    }

    fn insert(&mut self, pages: MmapRaw, held_bytes: u64) -> Result<SegmentId> {
        let id = self.segments.insert(Segment { pages, held_bytes })?;
        self.held_bytes += held_bytes;
        Ok(id)
    }

    /// Refuses allocations that would not fit: the system itself would promise the pages, and kill the process when it touches them. Asking
    /// costs tens of microseconds, so that small allocations are added up first.
    fn check_room(&mut self, bytes: u64) -> Result<()> {
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes);
        if self.unchecked_bytes < RECHECK_BYTES {
            return Ok(());
        }
        let Some(info) = self.memory_info() else { return Ok(()) };
        if bytes > info.free_bytes {
            return Err(Error::DeviceFull { requested_bytes: bytes, free_bytes: Some(info.free_bytes) });
        }
        self.unchecked_bytes = 0;
        Ok(())
    }
}

/// Maps anonymous pages, which are zero until touched.
fn map_pages(bytes: u64) -> Result<MmapRaw> {
    let full = || Error::DeviceFull { requested_bytes: bytes, free_bytes: os::memory_info().map(|i| i.free_bytes) };
    let len = usize::try_from(bytes).map_err(|_| full())?;
    let pages = MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(|_| full())?;
    let pages = MmapRaw::from(pages);
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_BYTES {
        // This is only advice: the code works on systems without huge pages too.
        let _ = pages.advise(memmap2::Advice::HugePage);
    }
    Ok(pages)
}

/// Returns pages to the system and keeps their addresses.
fn discard(pages: &MmapRaw, offset: u64, bytes: u64) {
    #[cfg(unix)]
    if bytes > 0 && offset + bytes <= pages.len() as u64 {
        // SAFETY: the pages are anonymous and private, so that discarding them only makes them zero; the caller has
        // given up their contents, and no kernel runs while the table is borrowed mutably.
        let _ = unsafe {
            pages.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset as usize, bytes as usize)
        };
    }
    #[cfg(not(unix))]
    let _ = (pages, offset, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_names_nothing() {
        let mut table = Table::new();
        let first = table.alloc(4096).unwrap();
        table.free(first);
        let second = table.alloc(4096).unwrap();
        assert_ne!(first, second);
        assert!(matches!(
            table.address(Region { segment: first, offset: 0, len: 1 }),
            Err(Error::UnknownSegment(id)) if id == first
        ));
        table.free(first);
        assert!(table.address(Region { segment: second, offset: 4095, len: 1 }).is_ok());
        assert!(table.address(Region { segment: second, offset: 4095, len: 2 }).is_err());
    }

    #[test]
    fn too_large_and_full_are_told_apart() {
        let mut table = Table::new();
        assert!(matches!(table.alloc(u64::MAX), Err(Error::TooLarge { .. })));
        if let Some(info) = table.memory_info() {
            let result = table.alloc(info.total_bytes);
            assert!(matches!(result, Err(Error::DeviceFull { .. })), "{result:?}");
        }
    }

    #[test]
    fn unmapped_pages_come_back_as_zeros() {
        let mut table = Table::new();
        let id = table.reserve(64 << 20).unwrap();
        table.map(id, 4 << 20, 2 << 20).unwrap();
        let region = Region { segment: id, offset: 4 << 20, len: 1 };
        let byte = table.address(region).unwrap();
        // SAFETY: the address lies in the mapped part.
        unsafe { byte.write(7) };
        table.unmap(id, 4 << 20, 2 << 20);
        table.map(id, 4 << 20, 2 << 20).unwrap();
        if cfg!(target_os = "linux") {
            // SAFETY: as above.
            assert_eq!(unsafe { byte.read() }, 0);
        }
        table.unmap(id, 4 << 20, 2 << 20);
        table.free(id);
        assert!(table.map(id, 0, 1).is_err());
    }
}
