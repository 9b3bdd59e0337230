//! Device memory, host memory, copies.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, Code, driver};
use crate::argument::Out;
use crate::host_memory::{self, Kind};
use crate::settings::settings;
use crate::work::{kind, work};
use crate::{context, device_memory, ipc, memory, pools, shared, space, values, virtual_memory};

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: Out<usize>, bytes: usize) -> c_int {
    // Unlike the runtime, the driver refuses allocations of 0 bytes.
    driver(if bytes == 0 { Err(Code::INVALID_VALUE) } else { device_memory::allocate(address, bytes) })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: usize) -> c_int {
    driver(device_memory::free(address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocManaged(address: Out<usize>, bytes: usize, flags: c_uint) -> c_int {
    driver(device_memory::allocate_managed(address, bytes, flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(address: Out<usize>, bytes: usize, stream: usize) -> c_int {
    driver(device_memory::allocate_in_order(address, bytes, None, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(address: Out<usize>, bytes: usize, pool: usize, stream: usize) -> c_int {
    driver(device_memory::allocate_in_order(address, bytes, Some(pool), stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: usize, stream: usize) -> c_int {
    let answer = work().capture_node(stream, kind::FREE, None);
    driver(answer.and_then(|_| device_memory::free_in_order(address)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<usize>, device: c_int) -> c_int {
    driver(context::card(device).and_then(|card| pool.set(pools::default_of(card))))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> c_int {
    driver(context::used().map(|card| {
        free.offer(shared::free(card) as usize);
        total.offer(settings().memory as usize);
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(start: Out<usize>, bytes: Out<usize>, address: usize) -> c_int {
    let allocated = memory::find(address).map(|(start, block)| (start, block.requested));
    let found = allocated.or_else(|| virtual_memory::range_at(address).map(|(start, bytes, _)| (start, bytes)));
    driver(found.ok_or(Code::NOT_FOUND).map(|(found, size)| {
        start.offer(found);
        bytes.offer(size);
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(address: Out<usize>, bytes: usize, flags: c_uint) -> c_int {
    let made = context::used().and_then(|card| host_memory::allocate(bytes, Kind::Pinned, flags, card));
    driver(made.and_then(|made| address.set(made)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(address: Out<usize>, bytes: usize) -> c_int {
    cuMemHostAlloc(address, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: usize) -> c_int {
    driver(host_memory::free(address, Kind::Pinned))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(address: usize, bytes: usize, flags: c_uint) -> c_int {
    driver(context::used().and_then(|card| host_memory::register(address, bytes, flags, card)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(address: usize) -> c_int {
    driver(host_memory::unregister(address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(pointer: Out<usize>, address: usize, _flags: c_uint) -> c_int {
    let found = host_memory::find(address).map(|_| address).ok_or(Code::INVALID_VALUE);
    driver(found.and_then(|address| pointer.set(address)))
}

/// Writes an attribute of a pointer, by the attribute's number.
#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(value: usize, attribute: c_int, address: usize) -> c_int {
    driver(pointer_attribute(value, attribute, address))
}

fn pointer_attribute(value: usize, attribute: c_int, address: usize) -> Answer {
    const HOST: c_uint = 1;
    const DEVICE: c_uint = 2;
    let host = host_memory::find(address);
    let allocated = memory::find(address).map(|(start, block)| (start, block.bytes, block.card));
    let device = allocated.or_else(|| virtual_memory::range_at(address));
    if host.is_none() && device.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let card = device.map(|(.., card)| card).or(host.map(|range| range.card)).unwrap_or_default();
    match attribute {
        1 => Out::at(value).set(context::handle(card)),
        2 => Out::at(value).set(if device.is_some() { DEVICE } else { HOST }),
        3 => Out::at(value).set(address),
        4 if host.is_some() => Out::at(value).set(address),
        4 => Err(Code::INVALID_VALUE),
        // Synchronous copies; number of the allocation; managed or not; card.
        6 => Out::at(value).set(0_u32),
        7 => Out::at(value).set(device.map_or(address, |(start, ..)| start) as u64),
        8 => Out::at(value).set(u32::from(host.is_some_and(|range| range.kind == Kind::Managed))),
        9 => Out::at(value).set(card as c_int),
        // Whether other processes can open it by the old IPC calls; start and size of the range.
        10 => Out::at(value).set(u32::from(allocated.is_some())),
        11 => Out::at(value).set(device.map_or(address, |(start, ..)| start)),
        12 => Out::at(value).set(device.map_or_else(|| host.map_or(0, |range| range.bytes), |(_, bytes, _)| bytes)),
        13 => Out::at(value).set(1_u32),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerSetAttribute(_value: usize, _attribute: c_int, _address: usize) -> c_int {
    0
}

fn now(to: usize, from: usize, bytes: usize) -> c_int {
    driver(context::used().and_then(|_| {
        work().forbid_in_capture()?;
        values::copy(to, from, bytes);
        Ok(())
    }))
}

fn in_order(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    driver(work().capture_node(stream, kind::MEMCPY, None).map(|is_captured| {
        if !is_captured {
            values::copy(to, from, bytes);
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy(to: usize, from: usize, bytes: usize) -> c_int {
    now(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) -> c_int {
    now(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) -> c_int {
    now(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: usize, from: usize, bytes: usize) -> c_int {
    now(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    in_order(to, from, bytes, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    in_order(to, from, bytes, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    in_order(to, from, bytes, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    in_order(to, from, bytes, stream)
}

fn fill(address: usize, pattern: &[u8], count: usize, stream: Option<usize>) -> c_int {
    let is_captured = match stream {
        Some(stream) => work().capture_node(stream, kind::MEMSET, None),
        None => work().forbid_in_capture().map(|()| false),
    };
    driver(is_captured.and_then(|is_captured| {
        if space::card_of(address).is_none() && host_memory::find(address).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        if !is_captured {
            values::fill(address, pattern, count);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(address: usize, value: u8, count: usize) -> c_int {
    fill(address, &[value], count, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16_v2(address: usize, value: u16, count: usize) -> c_int {
    fill(address, &value.to_ne_bytes(), count, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(address: usize, value: u32, count: usize) -> c_int {
    fill(address, &value.to_ne_bytes(), count, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(address: usize, value: u8, count: usize, stream: usize) -> c_int {
    fill(address, &[value], count, Some(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD16Async(address: usize, value: u16, count: usize, stream: usize) -> c_int {
    fill(address, &value.to_ne_bytes(), count, Some(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(address: usize, value: u32, count: usize, stream: usize) -> c_int {
    fill(address, &value.to_ne_bytes(), count, Some(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcGetMemHandle(handle: Out<ipc::Handle>, address: usize) -> c_int {
    driver(ipc::of_memory(address).and_then(|found| handle.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcOpenMemHandle_v2(address: Out<usize>, handle: ipc::Handle, _flags: c_uint) -> c_int {
    driver(ipc::open_memory(&handle).and_then(|opened| address.set(opened)))
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcCloseMemHandle(address: usize) -> c_int {
    driver(ipc::close_memory(address))
}
