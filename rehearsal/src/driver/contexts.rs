//! Cards and contexts. Every card has one context, its primary one. Contexts that a program makes are the same one.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, Code, driver};
use crate::argument::{Out, write_text};
use crate::exports::exports;
use crate::settings::settings;
use crate::{card, context, peers, wheel};

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    driver(context::initialize().and_then(|()| if settings().cards == 0 { Err(Code::NO_DEVICE) } else { Ok(()) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<c_int>, number: c_int) -> c_int {
    driver(context::card(number).and_then(|card| device.set(card as c_int)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<c_int>) -> c_int {
    driver(context::initialize().and_then(|()| count.set(settings().cards as c_int)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) -> c_int {
    driver(context::card(device).and_then(|_| {
        major.set(settings().capability.0)?;
        minor.set(settings().capability.1)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(text: Out<u8>, capacity: c_int, device: c_int) -> c_int {
    let capacity = usize::try_from(capacity).unwrap_or(0);
    driver(context::card(device).and_then(|_| write_text(text, capacity, &settings().name)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) -> c_int {
    driver(context::card(device).and_then(|_| bytes.set(settings().memory as usize)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: usize, _flags: c_uint) -> c_int {
    driver(context::of_handle(peer).and_then(peers::enable))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(peer: usize) -> c_int {
    driver(context::of_handle(peer).and_then(peers::disable))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(found: Out<usize>, device: c_int) -> c_int {
    driver(context::card(device).and_then(|card| {
        context::activate(card);
        found.set(context::handle(card))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(_device: c_int, _flags: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) -> c_int {
    driver(context::card(device).map(|card| {
        flags.offer(0);
        active.offer(context::is_active(card).into());
    }))
}

fn create(made: Out<usize>, device: c_int) -> Answer {
    let handle = context::handle(context::card(device)?);
    context::bind(handle)?;
    made.set(handle)
}

exports! {
    driver cuCtxCreate_v2(made: Out<usize>, _flags: c_uint, device: c_int) {
        create(made, device)
    }

    driver cuCtxCreate_v3(made: Out<usize>, _affinity: usize, _count: c_int, _flags: c_uint, device: c_int) {
        create(made, device)
    }

    driver cuCtxCreate_v4(made: Out<usize>, _parameters: usize, _flags: c_uint, device: c_int) {
        create(made, device)
    }

    driver cuDeviceGetUuid, driver cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) {
        context::card(device)?;
        uuid.set(card::uuid(device))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(_context: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(found: Out<usize>) -> c_int {
    driver(found.set(context::bound()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(wanted: usize) -> c_int {
    driver(context::bind(wanted))
}

thread_local! {
    static PUSHED: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(wanted: usize) -> c_int {
    PUSHED.with_borrow_mut(|pushed| pushed.push(context::bound()));
    driver(context::bind(wanted))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(found: Out<usize>) -> c_int {
    found.offer(context::bound());
    let before = PUSHED.with_borrow_mut(Vec::pop);
    driver(before.map_or(Err(Code::INVALID_CONTEXT), context::bind))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: Out<c_int>) -> c_int {
    driver(match context::bound() {
        0 => Err(Code::INVALID_CONTEXT),
        _ => device.set(context::current() as c_int),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetApiVersion(_context: usize, version: Out<c_uint>) -> c_int {
    driver(version.set(wheel::cuda() as c_uint))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetFlags(flags: Out<c_uint>) -> c_int {
    driver(flags.set(0))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetId(_context: usize, id: Out<u64>) -> c_int {
    driver(id.set(context::current() as u64 + 1))
}
