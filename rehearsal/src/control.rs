//! Functions for programs that know of this library: questions, and contents that they report (`told.rs`).

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use crate::answer::Code;
use crate::argument::{In, Out};
use crate::{dnn, promise, told, values};

/// Writes the number of operations that ran on the cards, and of reads of device memory with known and with unknown
/// contents.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_counters(counters: Out<[u64; 3]>) -> c_int {
    crate::answer::driver(counters.set(values::counters()))
}

/// Writes the most bytes of the host that cards could read at once: page-locked, and managed.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_host(peaks: Out<[u64; 2]>) -> c_int {
    crate::answer::driver(peaks.set(crate::host_memory::peaks()))
}

/// Writes the last execution plan of cuDNN whose workspace a program asked for since the last call: where the answer is
/// from (0: the settings; 1: cuDNN; 2: cuDNN, without what cuBLASLt takes for itself; 3: cuDNN, of an engine for one compute
/// capability alone), the engine's number, the bytes. Returns an error if there was none.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_plan(plan: Out<[i64; 3]>) -> c_int {
    let last = dnn::take_last_plan().ok_or(Code::NOT_FOUND);
    crate::answer::driver(last.and_then(|(source, engine, bytes)| plan.set([source as i64, engine, bytes])))
}

/// Returns the layer for Python programs as a program that defines `install(torch)`, which starts it.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_python() -> *const c_char {
    static PROGRAM: OnceLock<CString> = OnceLock::new();
    PROGRAM.get_or_init(|| CString::new(rehearsal_python::values()).unwrap_or_default()).as_ptr()
}

/// Sets the function that is called at each read of unknown contents, with address and bytes. Null ends that.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_listen(on_read: Option<told::OnRead>) {
    told::listen(on_read);
}

/// Shows contents of device memory to this thread's reads, until `vramlab_rehearsal_withdraw`.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_show(address: usize, contents: In<u8>, bytes: usize) -> c_int {
    let contents = contents.get_all(bytes);
    crate::answer::driver(contents_shown(address, contents))
}

fn contents_shown(address: usize, contents: crate::answer::Answer<Vec<u8>>) -> crate::answer::Answer {
    told::show(address, contents?);
    Ok(())
}

/// Queues an answer for this thread's next read of 1, 4 or 8 bytes that nothing else answers. Several can be queued.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_queue(number: i64) {
    told::queue(number);
}

/// Removes contents that were shown to this thread, and answers that were queued for it.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_withdraw() {
    told::withdraw();
}

/// Removes answers that were queued for this thread, and returns how many were not read.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_unqueue() -> usize {
    told::unqueue()
}

/// Writes the ranges (address, bytes) that copies, fills and collectives wrote since the last call, and returns their
/// number. Returns -1 if anything may have been written, or if there is no room for all.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_written(room: Out<[u64; 2]>, capacity: usize) -> i64 {
    match told::take_written() {
        Some(ranges) if ranges.len() <= capacity => {
            let written = ranges.iter().enumerate().try_for_each(|(index, range)| room.set_at(index, *range));
            written.map_or(-1, |()| ranges.len() as i64)
        }
        _ => -1,
    }
}

/// Returns a number for the contents that a collective leaves in a range of device memory; 0 if it leaves nothing that
/// can be known.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_promise(address: usize, bytes: usize) -> u64 {
    values::promised(address, bytes).map_or(0, promise::number)
}

/// Waits for the contents that a number stands for and writes them. Returns 0 if they are not known, 2 if ranks that were
/// not started have a part in them, else 1. A number can be used once.
#[unsafe(no_mangle)]
extern "C" fn vramlab_rehearsal_promised(number: u64, room: Out<u8>, bytes: usize) -> c_int {
    let Some((contents, assumed)) = promise::take(number).filter(|(contents, _)| contents.len() == bytes) else {
        return 0;
    };
    match contents.iter().enumerate().try_for_each(|(index, byte)| room.set_at(index, *byte)) {
        Ok(()) if assumed => 2,
        Ok(()) => 1,
        Err(_) => 0,
    }
}
