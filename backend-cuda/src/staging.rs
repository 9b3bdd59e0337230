//! Copies to the device through pinned memory, which the device reads itself.
//!
//! Whether an asynchronous copy from ordinary memory has finished reading when the call returns depends on the system.
//! Here the bytes are first copied to pinned memory. It has two pieces that are used in turn, each with an event
//! recorded after its last copy. So the caller's memory can be reused at once, and the caller does not wait for the
//! queue.

use std::ffi::c_void;

use cudarc::driver::sys;

use crate::driver::{Driven, driven};

/// Size of a piece. Copying it takes many times as long as starting the copy.
const PIECE_BYTES: usize = 4 << 20;

/// Alignment of a copy's source: a cache line of the host.
const LINE_BYTES: usize = 64;

/// The two pieces. The context must be current whenever they are used or dropped.
pub(crate) struct Staging {
    pieces: [Piece; 2],
    current: usize,
}

/// Pinned memory that is filled from its beginning, and the event that signals that it was read.
struct Piece {
    memory: *mut c_void,
    read: sys::CUevent,
    used_bytes: usize,
}

// SAFETY: memory and events of the driver's belong to no thread.
unsafe impl Send for Piece {}

impl Staging {
    pub(crate) fn new() -> Driven<Self> {
        Ok(Self { pieces: [Piece::new()?, Piece::new()?], current: 0 })
    }

    /// Copies to the device, in the queue. The source may be reused on return.
    ///
    /// # Safety
    /// `to..to + from.len()` is device memory.
    pub(crate) unsafe fn upload(&mut self, from: &[u8], to: u64, stream: sys::CUstream) -> Driven<()> {
        let mut done = 0;
        while done < from.len() {
            if self.pieces[self.current].used_bytes == PIECE_BYTES {
                self.turn()?;
            }
            let piece = &mut self.pieces[self.current];
            let part = &from[done..][..(from.len() - done).min(PIECE_BYTES - piece.used_bytes)];
            // SAFETY: the piece has room for the part, where nothing lies that the device has still to read.
            let source = unsafe { piece.memory.cast::<u8>().add(piece.used_bytes) };
            // SAFETY: as above.
            unsafe { source.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            piece.used_bytes = (piece.used_bytes + part.len()).next_multiple_of(LINE_BYTES);
            driven!(cuMemcpyHtoDAsync_v2(to + done as u64, source.cast(), part.len(), stream))?;
            driven!(cuEventRecord(piece.read, stream))?;
            done += part.len();
        }
        Ok(())
    }

    /// Switches to the other piece, once the device has read all of it.
    fn turn(&mut self) -> Driven<()> {
        self.current = (self.current + 1) % self.pieces.len();
        let piece = &mut self.pieces[self.current];
        // An event that was never recorded counts as complete.
        driven!(cuEventSynchronize(piece.read))?;
        piece.used_bytes = 0;
        Ok(())
    }
}

impl Piece {
    fn new() -> Driven<Self> {
        let mut piece = Self { memory: std::ptr::null_mut(), read: std::ptr::null_mut(), used_bytes: 0 };
        driven!(cuMemHostAlloc(&mut piece.memory, PIECE_BYTES, 0))?;
        driven!(cuEventCreate(&mut piece.read, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32))?;
        Ok(piece)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // The driver waits for copies from the memory. Nothing can be done about a failure.
        if !self.read.is_null() {
            let _ = driven!(cuEventDestroy_v2(self.read));
        }
        if !self.memory.is_null() {
            let _ = driven!(cuMemFreeHost(self.memory));
        }
    }
}
