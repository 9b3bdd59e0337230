//! Copies to the device by way of memory that the device reads itself.
//!
//! What an asynchronous copy out of ordinary memory promises depends on the system: the driver may still read it when
//! the call is back. Here the bytes are first moved to pinned memory, of which there are two pieces in turns, each with
//! an event behind its last copy; so the caller's memory is free at once, and nobody waits for the queue.

use std::ffi::c_void;

use cudarc::driver::sys;

use crate::driver::{Driven, driven};

/// Of a piece: many times what the copy's start costs.
const PIECE_BYTES: usize = 4 << 20;

/// Where a copy begins: a line of the host's cache.
const LINE_BYTES: usize = 64;

/// The two pieces; the context is current whenever they are used, and when they go.
pub(crate) struct Staging {
    pieces: [Piece; 2],
    current: usize,
}

/// Pinned memory that is filled from its beginning, and the event that says that it was read.
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

    /// Copies to the device, in the queue; the source may be reused on return.
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

    /// Begins the other piece, once the device has read all of it.
    fn turn(&mut self) -> Driven<()> {
        self.current = (self.current + 1) % self.pieces.len();
        let piece = &mut self.pieces[self.current];
        // An event that nothing was recorded to is over already.
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
        // The driver waits for copies out of it. About a failure nothing can be done.
        if !self.read.is_null() {
            let _ = driven!(cuEventDestroy_v2(self.read));
        }
        if !self.memory.is_null() {
            let _ = driven!(cuMemFreeHost(self.memory));
        }
    }
}
