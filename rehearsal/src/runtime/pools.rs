//! Pools of stream-ordered memory.

use std::ffi::c_int;

use crate::answer::{Answer, Code, runtime};
use crate::argument::{In, Out};
use crate::{context, pools};

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetMemPool(pool: Out<usize>, number: c_int) -> c_int {
    runtime(context::card(number).and_then(|card| pool.set(pools::current_of(card))))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSetMemPool(number: c_int, pool: usize) -> c_int {
    runtime(context::card(number).and_then(|card| pools::set_current(card, pool)))
}

/// The beginning of `cudaMemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: c_int,
    handles: c_int,
    location_kind: c_int,
    location: c_int,
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolCreate(pool: Out<usize>, properties: In<Properties>) -> c_int {
    const DEVICE: c_int = 1;
    let create = || -> Answer {
        let properties = properties.get()?;
        if properties.location_kind != DEVICE {
            return Err(Code::NOT_SUPPORTED);
        }
        pool.set(pools::create(context::card(properties.location)?))
    };
    runtime(create())
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolDestroy(pool: usize) -> c_int {
    runtime(pools::destroy(pool))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolTrimTo(pool: usize, keep: usize) -> c_int {
    runtime(pools::trim(pool, keep as u64))
}

/// The first three attributes are ints, the others 64 bits.
#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolGetAttribute(pool: usize, attribute: c_int, value: usize) -> c_int {
    let found = pools::attribute(pool, attribute);
    runtime(found.and_then(|found| match attribute {
        1..=3 => Out::<c_int>::at(value).set(found as c_int),
        _ => Out::<u64>::at(value).set(found),
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolSetAttribute(pool: usize, attribute: c_int, value: usize) -> c_int {
    let wanted = match attribute {
        1..=3 => In::<c_int>::at(value).get().map(|value| value as u64),
        _ => In::<u64>::at(value).get(),
    };
    runtime(wanted.and_then(|wanted| pools::set_attribute(pool, attribute, wanted)))
}

/// Does nothing: all cards may access all pools.
#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolSetAccess(_pool: usize, _access: usize, _count: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolGetAccess(flags: Out<c_int>, _pool: usize, _location: usize) -> c_int {
    const READ_AND_WRITE: c_int = 3;
    runtime(flags.set(READ_AND_WRITE))
}
