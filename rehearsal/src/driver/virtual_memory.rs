//! Virtual memory (`cuMemAddressReserve` and its companions), which PyTorch's expandable segments use.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, Code, driver};
use crate::argument::{In, Out};
use crate::space::GRANULARITY;
use crate::work::work;
use crate::{context, ipc, virtual_memory};

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressReserve(
    address: Out<usize>,
    bytes: usize,
    alignment: usize,
    _wanted: usize,
    _flags: u64,
) -> c_int {
    let reserved = context::used().and_then(|card| virtual_memory::reserve(card, bytes, alignment));
    driver(reserved.and_then(|reserved| address.set(reserved)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: usize, bytes: usize) -> c_int {
    driver(virtual_memory::unreserve(address, bytes))
}

/// The beginning of `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: c_int,
    handles: c_int,
    location_kind: c_int,
    location: c_int,
}

/// Value of `location_kind` for a card.
const DEVICE: c_int = 1;
/// Bit in `handles` for a handle between machines.
const FABRIC: c_int = 8;

#[unsafe(no_mangle)]
extern "C" fn cuMemCreate(handle: Out<usize>, bytes: usize, properties: In<Properties>, _flags: u64) -> c_int {
    let create = || -> Answer {
        let properties = properties.get()?;
        // A capture may take memory so: PyTorch's expandable segments grow in one on an H200 (`scripts/card/snapshots.py`, expandable_graph).
        let card = context::used()?;
        if properties.handles & FABRIC != 0 {
            return Err(Code::NOT_PERMITTED);
        }
        let is_device = properties.location_kind == DEVICE;
        let card = if is_device { context::card(properties.location)? } else { card };
        handle.set(virtual_memory::create(card, bytes, is_device)?)
    };
    driver(create())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: usize) -> c_int {
    driver(virtual_memory::release(handle))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: usize, bytes: usize, offset: usize, handle: usize, _flags: u64) -> c_int {
    driver(virtual_memory::map(address, bytes, offset, handle))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: usize, bytes: usize) -> c_int {
    driver(work().forbid_in_capture().and_then(|()| virtual_memory::unmap(address, bytes)))
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location_kind: c_int,
    location: c_int,
    flags: c_uint,
}

#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(address: usize, bytes: usize, access: In<Access>, count: usize) -> c_int {
    let set = |index| -> Answer {
        let access = access.get_at(index)?;
        virtual_memory::set_access(address, bytes, access.flags.into())
    };
    driver(if count == 0 { Err(Code::INVALID_VALUE) } else { (0..count).try_for_each(set) })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAccess(flags: Out<u64>, _location: usize, address: usize) -> c_int {
    driver(virtual_memory::access(address).and_then(|found| flags.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(bytes: Out<usize>, _properties: usize, _option: c_int) -> c_int {
    driver(bytes.set(GRANULARITY))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRetainAllocationHandle(handle: Out<usize>, address: usize) -> c_int {
    driver(virtual_memory::handle_at(address).and_then(|found| {
        virtual_memory::retain(found)?;
        handle.set(found)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationPropertiesFromHandle(properties: Out<Properties>, handle: usize) -> c_int {
    const PINNED: c_int = 1;
    driver(virtual_memory::memory(handle).and_then(|memory| {
        let location = memory.card as c_int;
        properties.set(Properties { kind: PINNED, handles: 0, location_kind: DEVICE, location })
    }))
}

/// Handle type for other processes: file descriptors.
const DESCRIPTOR: c_int = 1;

#[unsafe(no_mangle)]
extern "C" fn cuMemExportToShareableHandle(exported: Out<c_int>, handle: usize, kind: c_int, _flags: u64) -> c_int {
    let made = if kind == DESCRIPTOR { ipc::export(handle) } else { Err(Code::NOT_SUPPORTED) };
    driver(made.and_then(|made| exported.set(made)))
}

/// The descriptor is passed in place of a pointer.
#[unsafe(no_mangle)]
extern "C" fn cuMemImportFromShareableHandle(handle: Out<usize>, descriptor: usize, kind: c_int) -> c_int {
    let made = if kind == DESCRIPTOR { ipc::import(descriptor as c_int) } else { Err(Code::NOT_SUPPORTED) };
    driver(made.and_then(|made| handle.set(made)))
}
