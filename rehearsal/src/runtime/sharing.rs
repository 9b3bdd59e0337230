//! Memory and events that processes share.

use std::ffi::{c_int, c_uint};

use crate::answer::runtime;
use crate::argument::Out;
use crate::ipc::{self, Handle};
use crate::work::work;

#[unsafe(no_mangle)]
extern "C" fn cudaIpcGetMemHandle(handle: Out<Handle>, address: usize) -> c_int {
    runtime(ipc::of_memory(address).and_then(|found| handle.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcOpenMemHandle(address: Out<usize>, handle: Handle, _flags: c_uint) -> c_int {
    runtime(ipc::open_memory(&handle).and_then(|opened| address.set(opened)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcCloseMemHandle(address: usize) -> c_int {
    runtime(ipc::close_memory(address))
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcGetEventHandle(handle: Out<Handle>, event: usize) -> c_int {
    let found = work().event(event).map(|_| ipc::of_event());
    runtime(found.and_then(|found| handle.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcOpenEventHandle(event: Out<usize>, handle: Handle) -> c_int {
    runtime(ipc::check_event(&handle).and_then(|()| {
        let opened = work().create_event(0);
        event.set(opened)
    }))
}
