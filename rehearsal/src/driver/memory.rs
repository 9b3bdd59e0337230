//! What stands at an address, copies, fills.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, Code, driver};
use crate::argument::Out;
use crate::exports::exports;
use crate::host_memory::{self, Kind};
use crate::work::{kind, work};
use crate::{context, memory, space, values, virtual_memory};

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(start: Out<usize>, bytes: Out<usize>, address: usize) -> c_int {
    let allocated = memory::find(address).map(|(start, block)| (start, block.requested));
    let found = allocated.or_else(|| virtual_memory::range_at(address).map(|(start, bytes, _)| (start, bytes)));
    driver(found.ok_or(Code::NOT_FOUND).map(|(found, size)| {
        start.offer(found);
        bytes.offer(size);
    }))
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

exports! {
    driver cuMemcpy, driver cuMemcpyHtoD_v2, driver cuMemcpyDtoH_v2, driver cuMemcpyDtoD_v2(
        to: usize, from: usize, bytes: usize,
    ) {
        context::used()?;
        work().forbid_in_capture()?;
        values::copy(to, from, bytes);
        Ok(())
    }

    driver cuMemcpyAsync, driver cuMemcpyHtoDAsync_v2, driver cuMemcpyDtoHAsync_v2, driver cuMemcpyDtoDAsync_v2(
        to: usize, from: usize, bytes: usize, stream: usize,
    ) {
        let is_captured = work().capture_node(stream, kind::MEMCPY, None)?;
        if !is_captured {
            values::copy(to, from, bytes);
        }
        Ok(())
    }
}

fn fill(address: usize, pattern: &[u8], count: usize, stream: Option<usize>) -> Answer {
    let is_captured = match stream {
        Some(stream) => work().capture_node(stream, kind::MEMSET, None)?,
        None => work().forbid_in_capture().map(|()| false)?,
    };
    if space::card_of(address).is_none() && host_memory::find(address).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    if !is_captured {
        values::fill(address, pattern, count);
    }
    Ok(())
}

/// Defines functions that fill memory with numbers of one type: at once, and in a stream's order.
macro_rules! fills {
    ($($interface:ident $now:ident, $also:ident $in_order:ident = $type:ty;)*) => {
        exports! {$(
            $interface $now(address: usize, value: $type, count: usize) {
                fill(address, &value.to_ne_bytes(), count, None)
            }
            $also $in_order(address: usize, value: $type, count: usize, stream: usize) {
                fill(address, &value.to_ne_bytes(), count, Some(stream))
            }
        )*}
    };
}

fills! {
    driver cuMemsetD8_v2, driver cuMemsetD8Async = u8;
    driver cuMemsetD16_v2, driver cuMemsetD16Async = u16;
    driver cuMemsetD32_v2, driver cuMemsetD32Async = u32;
}
