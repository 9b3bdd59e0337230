//! Host memory that the card can access.

use std::ffi::{c_int, c_uint};

use crate::answer::{Code, runtime};
use crate::argument::Out;
use crate::context;
use crate::host_memory::{self, Kind};

#[unsafe(no_mangle)]
extern "C" fn cudaHostAlloc(address: Out<usize>, bytes: usize, flags: c_uint) -> c_int {
    let made = context::used().and_then(|card| host_memory::allocate(bytes, Kind::Pinned, flags, card));
    runtime(made.and_then(|made| address.set(made)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMallocHost(address: Out<usize>, bytes: usize) -> c_int {
    cudaHostAlloc(address, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeHost(address: usize) -> c_int {
    runtime(if address == 0 { Ok(()) } else { host_memory::free(address, Kind::Pinned) })
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostRegister(address: usize, bytes: usize, flags: c_uint) -> c_int {
    runtime(context::used().and_then(|card| host_memory::register(address, bytes, flags, card)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostUnregister(address: usize) -> c_int {
    runtime(host_memory::unregister(address))
}

/// Host and card share one address space.
#[unsafe(no_mangle)]
extern "C" fn cudaHostGetDevicePointer(pointer: Out<usize>, address: usize, _flags: c_uint) -> c_int {
    let found = host_memory::find(address).map(|_| address).ok_or(Code::INVALID_VALUE);
    runtime(found.and_then(|address| pointer.set(address)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostGetFlags(flags: Out<c_uint>, address: usize) -> c_int {
    let found = host_memory::find(address).map(|range| range.flags).ok_or(Code::INVALID_VALUE);
    runtime(found.and_then(|found| flags.set(found)))
}
