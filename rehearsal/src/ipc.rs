//! Memory and events that processes share. A handle contains everything that the other process needs.
//!
//! The bytes belong to the process that made them, so that a process that opens a handle takes no memory of the card.

use crate::answer::{Answer, Code};
use crate::memory::{self, Origin};
use crate::virtual_memory;

/// A handle, which programs pass on unchanged.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    /// Mark that tells one of our handles from other bytes.
    mark: u64,
    card: u64,
    bytes: u64,
    pid: u64,
    address: u64,
    reserved: [u64; 3],
}

const MARK: u64 = u64::from_le_bytes(*b"rehearse");

/// Makes a handle for the allocation that contains this address.
pub(crate) fn of_memory(address: usize) -> Answer<Handle> {
    let (start, block) = memory::find(address).ok_or(Code::INVALID_VALUE)?;
    let pid = u64::from(std::process::id());
    let (card, bytes) = (block.card as u64, block.bytes as u64);
    Ok(Handle { mark: MARK, card, bytes, pid, address: start as u64, reserved: [0; 3] })
}

/// Reserves addresses for another process's allocation. Its maker cannot open it.
pub(crate) fn open_memory(handle: &Handle) -> Answer<usize> {
    let bytes = usize::try_from(handle.bytes).ok().filter(|_| handle.mark == MARK).ok_or(Code::INVALID_HANDLE)?;
    if handle.pid == u64::from(std::process::id()) {
        return Err(Code::INVALID_CONTEXT);
    }
    memory::place(crate::context::card(handle.card as i32)?, bytes, Origin::Imported)
}

/// Frees addresses from [`open_memory`].
pub(crate) fn close_memory(address: usize) -> Answer {
    match memory::find(address) {
        Some((start, block)) if start == address && block.origin == Origin::Imported => {
            memory::free(address).map(|_| ())
        }
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Makes a handle for an event. The event is complete whenever another process asks.
pub(crate) fn of_event() -> Handle {
    Handle { mark: MARK, card: 0, bytes: 0, pid: u64::from(std::process::id()), address: 0, reserved: [0; 3] }
}

/// Checks that a handle is one of ours.
pub(crate) fn check_event(handle: &Handle) -> Answer {
    if handle.mark == MARK { Ok(()) } else { Err(Code::INVALID_HANDLE) }
}

/// Makes a file descriptor that stands for virtual memory, to be sent to another process.
pub(crate) fn export(memory: usize) -> Answer<i32> {
    let physical = virtual_memory::memory(memory)?;
    // SAFETY: the name ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"vramlab-rehearsal-memory".as_ptr(), 0) };
    if descriptor < 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    let words = [MARK, physical.card as u64, physical.bytes as u64];
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    // SAFETY: reads `bytes`, of which it is told the length.
    let written = unsafe { libc::pwrite(descriptor, bytes.as_ptr().cast(), bytes.len(), 0) };
    if written == bytes.len() as isize { Ok(descriptor) } else { Err(Code::OUT_OF_MEMORY) }
}

/// Opens virtual memory of another process.
pub(crate) fn import(descriptor: i32) -> Answer<usize> {
    let mut bytes = [0; 24];
    // SAFETY: writes `bytes`, of which it is told the length.
    let read = unsafe { libc::pread(descriptor, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at * 8 + index]));
    if read != 24 || word(0) != MARK {
        return Err(Code::INVALID_VALUE);
    }
    virtual_memory::create(crate::context::card(word(1) as i32)?, word(2) as usize, false)
}
