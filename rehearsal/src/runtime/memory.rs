//! Device memory, and attributes of pointers.

use std::ffi::c_int;

use crate::answer::{Answer, Code, runtime};
use crate::argument::Out;
use crate::host_memory::{self, Kind};
use crate::work::work;
use crate::{context, device_memory, space, virtual_memory};

/// Rows begin at multiples of 512 bytes.
#[unsafe(no_mangle)]
extern "C" fn cudaMallocPitch(address: Out<usize>, pitch: Out<usize>, width: usize, height: usize) -> c_int {
    let row = width.checked_next_multiple_of(512);
    let whole = row.and_then(|row| Some((row, row.checked_mul(height)?))).ok_or(Code::OUT_OF_MEMORY);
    runtime(whole.and_then(|(row, bytes)| {
        pitch.set(row)?;
        device_memory::allocate(address, bytes)
    }))
}

/// `cudaPointerAttributes`. In CUDA 13 it ends with unused room.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    kind: c_int,
    card: c_int,
    device_pointer: usize,
    host_pointer: usize,
}

const UNREGISTERED: c_int = 0;
const HOST: c_int = 1;
const DEVICE: c_int = 2;
const MANAGED: c_int = 3;
/// Card number that stands for no card.
const NO_CARD: c_int = -2;

#[unsafe(no_mangle)]
extern "C" fn cudaPointerGetAttributes(attributes: Out<Attributes>, address: usize) -> c_int {
    runtime(context::initialize().and_then(|()| attributes.set(describe(address))))
}

fn describe(address: usize) -> Attributes {
    if let Some(range) = host_memory::find(address) {
        let kind = if range.kind == Kind::Managed { MANAGED } else { HOST };
        return Attributes { kind, card: range.card as c_int, device_pointer: address, host_pointer: address };
    }
    match space::card_of(address) {
        Some(card) => {
            let card = virtual_memory::range_at(address).map_or(card, |(_, _, card)| card);
            Attributes { kind: DEVICE, card: card as c_int, device_pointer: address, host_pointer: 0 }
        }
        None => Attributes { kind: UNREGISTERED, card: NO_CARD, device_pointer: 0, host_pointer: address },
    }
}

/// Arrays and textures are not supported, because their memory is not counted.
#[unsafe(no_mangle)]
extern "C" fn cudaMallocArray() -> c_int {
    crate::log::once("not_implemented", "cudaMallocArray");
    runtime(Err(Code::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMalloc3DArray() -> c_int {
    crate::log::once("not_implemented", "cudaMalloc3DArray");
    runtime(Err(Code::NOT_SUPPORTED))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

/// Memory of rows with a pitch.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pitched {
    address: usize,
    pitch: usize,
    width: usize,
    height: usize,
}

#[unsafe(no_mangle)]
extern "C" fn cudaMalloc3D(pitched: Out<Pitched>, extent: Extent) -> c_int {
    let Extent { width, height, depth } = extent;
    let allocate = || -> Answer {
        let pitch = width.checked_next_multiple_of(512).ok_or(Code::OUT_OF_MEMORY)?;
        let bytes = pitch.checked_mul(height).and_then(|plane| plane.checked_mul(depth)).ok_or(Code::OUT_OF_MEMORY)?;
        let mut address = 0_usize;
        device_memory::allocate(Out::at(&raw mut address as usize), bytes)?;
        pitched.set(Pitched { address, pitch, width, height })
    };
    runtime(allocate())
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceReset() -> c_int {
    // The memory of the card is not freed. Few programs reset in the middle of their work, so the log entry suffices.
    crate::log::once("not_implemented", "cudaDeviceReset");
    work().complete_all();
    0
}
