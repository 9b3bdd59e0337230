//! Cards: their number, the current one, and their access to each other.

use std::ffi::{c_int, c_uint};

use crate::answer::{Code, runtime};
use crate::argument::{Out, Text};
use crate::settings::settings;
use crate::{context, entry, peers, wheel};

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceCount(count: Out<c_int>) -> c_int {
    let answer = context::initialize().and_then(|()| match settings().cards {
        0 => Err(Code::NO_DEVICE),
        cards => count.set(cards as c_int),
    });
    if answer.is_err() {
        count.offer(0);
    }
    runtime(answer)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDevice(number: Out<c_int>) -> c_int {
    runtime(context::initialize().and_then(|()| number.set(context::current() as c_int)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(number: c_int) -> c_int {
    let answer = context::card(number).and_then(|card| {
        context::set_current(card);
        context::used().map(|_| ())
    });
    runtime(answer)
}

#[unsafe(no_mangle)]
extern "C" fn cudaInitDevice(number: c_int, _device_flags: c_uint, _flags: c_uint) -> c_int {
    runtime(context::card(number).map(context::activate))
}

#[unsafe(no_mangle)]
extern "C" fn cudaSetDeviceFlags(_flags: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceFlags(flags: Out<c_uint>) -> c_int {
    runtime(flags.set(0))
}

/// Returns a limit by its number: stack, buffer of `printf`, heap, and so on. Limits that programs set are not kept.
#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetLimit(value: Out<usize>, limit: c_int) -> c_int {
    let found = match limit {
        0 => Ok(1024),
        1 => Ok(1 << 20),
        2 => Ok(8 << 20),
        3 => Ok(2),
        4 => Ok(2048),
        5 => Ok(128),
        6 => Ok(0),
        _ => Err(Code::INVALID_VALUE),
    };
    runtime(found.and_then(|limit| value.set(limit)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSetLimit(_limit: c_int, _value: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, _flags: c_uint) -> c_int {
    runtime(context::card(peer).and_then(peers::enable))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceDisablePeerAccess(peer: c_int) -> c_int {
    runtime(context::card(peer).and_then(peers::disable))
}

/// Returns an attribute of a pair by its number: rank, access, atomics, arrays.
#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetP2PAttribute(value: Out<c_int>, attribute: c_int, from: c_int, to: c_int) -> c_int {
    let found = peers::can_access(from, to).and_then(|can| match attribute {
        1 => Ok(0),
        2..=4 => Ok(c_int::from(can)),
        _ => Err(Code::INVALID_VALUE),
    });
    runtime(found.and_then(|found| value.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDriverEntryPoint(name: Text, function: Out<usize>, flags: u64, status: Out<c_int>) -> c_int {
    cudaGetDriverEntryPointByVersion(name, function, wheel::cuda() as c_uint, flags, status)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDriverEntryPointByVersion(
    name: Text,
    function: Out<usize>,
    version: c_uint,
    _flags: u64,
    status: Out<c_int>,
) -> c_int {
    let found = name.get().map(|name| {
        let found = entry::find(&name, version as c_int);
        if found.is_none() {
            crate::log::once("no_such_function", &name);
        }
        found
    });
    // The status is "found" or "no such symbol". Without room for the status, a missing function is an error.
    let answer = found.and_then(|found| {
        status.offer(c_int::from(found.is_none()));
        function.set(found.unwrap_or(0))?;
        if found.is_none() && status.is_null() { Err(Code::NOT_FOUND) } else { Ok(()) }
    });
    runtime(answer)
}
