//! Memory of the device in order of the calls and of streams, memory of the host, and what processes share.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, Code};
use crate::argument::Out;
use crate::exports::exports;
use crate::host_memory::{self, Kind};
use crate::ipc::{self, Handle};
use crate::settings::settings;
use crate::work::{kind, work};
use crate::{context, device_memory, pools, shared};

fn allocate_host(address: Out<usize>, bytes: usize, flags: c_uint) -> Answer {
    let card = context::used()?;
    address.set(host_memory::allocate(bytes, Kind::Pinned, flags, card)?)
}

exports! {
    driver cuMemAlloc_v2(address: Out<usize>, bytes: usize) {
        // Unlike the runtime, the driver refuses allocations of 0 bytes.
        if bytes == 0 { Err(Code::INVALID_VALUE) } else { device_memory::allocate(address, bytes) }
    }

    runtime cudaMalloc(address: Out<usize>, bytes: usize) {
        device_memory::allocate(address, bytes)
    }

    driver cuMemFree_v2, runtime cudaFree(address: usize) {
        device_memory::free(address)
    }

    /// Managed memory is host memory. It is not known what kernels would write to it, nor how much of it would move to
    /// the card.
    driver cuMemAllocManaged, runtime cudaMallocManaged(address: Out<usize>, bytes: usize, flags: c_uint) {
        device_memory::allocate_managed(address, bytes, flags)
    }

    driver cuMemAllocAsync, runtime cudaMallocAsync(address: Out<usize>, bytes: usize, stream: usize) {
        device_memory::allocate_in_order(address, bytes, None, stream)
    }

    driver cuMemAllocFromPoolAsync, runtime cudaMallocFromPoolAsync(
        address: Out<usize>, bytes: usize, pool: usize, stream: usize,
    ) {
        device_memory::allocate_in_order(address, bytes, Some(pool), stream)
    }

    driver cuMemFreeAsync, runtime cudaFreeAsync(address: usize, stream: usize) {
        let captured = work().capture_node(stream, kind::FREE, None);
        captured.and_then(|_| device_memory::free_in_order(address))
    }

    driver cuDeviceGetDefaultMemPool, runtime cudaDeviceGetDefaultMemPool(pool: Out<usize>, number: c_int) {
        pool.set(pools::default_of(context::card(number)?))
    }

    driver cuMemGetInfo_v2, runtime cudaMemGetInfo(free: Out<usize>, total: Out<usize>) {
        let card = context::used()?;
        free.offer(shared::free(card) as usize);
        total.offer(settings().memory as usize);
        Ok(())
    }

    driver cuMemHostAlloc, runtime cudaHostAlloc(address: Out<usize>, bytes: usize, flags: c_uint) {
        allocate_host(address, bytes, flags)
    }

    driver cuMemAllocHost_v2, runtime cudaMallocHost(address: Out<usize>, bytes: usize) {
        allocate_host(address, bytes, 0)
    }

    driver cuMemFreeHost(address: usize) {
        host_memory::free(address, Kind::Pinned)
    }

    runtime cudaFreeHost(address: usize) {
        if address == 0 { Ok(()) } else { host_memory::free(address, Kind::Pinned) }
    }

    driver cuMemHostRegister_v2, runtime cudaHostRegister(address: usize, bytes: usize, flags: c_uint) {
        let card = context::used()?;
        host_memory::register(address, bytes, flags, card)
    }

    driver cuMemHostUnregister, runtime cudaHostUnregister(address: usize) {
        host_memory::unregister(address)
    }

    /// Host and card share one address space.
    driver cuMemHostGetDevicePointer_v2, runtime cudaHostGetDevicePointer(
        pointer: Out<usize>, address: usize, _flags: c_uint,
    ) {
        host_memory::find(address).ok_or(Code::INVALID_VALUE)?;
        pointer.set(address)
    }

    runtime cudaHostGetFlags(flags: Out<c_uint>, address: usize) {
        let found = host_memory::find(address).ok_or(Code::INVALID_VALUE)?.flags;
        flags.set(found)
    }

    driver cuIpcGetMemHandle, runtime cudaIpcGetMemHandle(handle: Out<Handle>, address: usize) {
        handle.set(ipc::of_memory(address)?)
    }

    driver cuIpcOpenMemHandle_v2, runtime cudaIpcOpenMemHandle(address: Out<usize>, handle: Handle, _flags: c_uint) {
        address.set(ipc::open_memory(&handle)?)
    }

    driver cuIpcCloseMemHandle, runtime cudaIpcCloseMemHandle(address: usize) {
        ipc::close_memory(address)
    }

    runtime cudaIpcGetEventHandle(handle: Out<Handle>, event: usize) {
        work().event(event)?;
        handle.set(ipc::of_event())
    }

    runtime cudaIpcOpenEventHandle(event: Out<usize>, handle: Handle) {
        ipc::check_event(&handle)?;
        let opened = work().create_event(0);
        event.set(opened)
    }
}
