//! NVML: the figures that `nvidia-smi`, PyTorch and monitoring programs ask for. Everything else is "not supported".

use std::ffi::{c_char, c_int, c_uint};

use crate::answer::{Answer, Code};
use crate::argument::{Out, Text, write_text};
use crate::settings::settings;
use crate::{card, context, shared, wheel};

/// `NVML_SUCCESS` and others.
const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;

/// Handles are card numbers counted from 1, because null is not a handle.
const FIRST: usize = 1;

fn card_of(device: usize) -> Answer<usize> {
    device.checked_sub(FIRST).filter(|card| *card < settings().cards).ok_or(Code::INVALID_VALUE)
}

fn status(answer: Answer) -> c_int {
    answer.map_or(INVALID_ARGUMENT, |()| SUCCESS)
}

/// Defines functions that only have to succeed.
macro_rules! succeeds {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            SUCCESS
        }
    )*};
}

// For build.rs: exported_names!(nvmlInit, nvmlInit_v2, nvmlInitWithFlags, nvmlShutdown)
succeeds! { nvmlInit nvmlInit_v2 nvmlInitWithFlags nvmlShutdown }

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"The operation was successful",
        INVALID_ARGUMENT => c"Invalid argument",
        3 => c"Not Supported",
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount(count: Out<c_uint>) -> c_int {
    status(count.set(settings().cards as c_uint))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<c_uint>) -> c_int {
    nvmlDeviceGetCount(count)
}

fn handle(device: Out<usize>, card: Option<usize>) -> c_int {
    match card.filter(|card| *card < settings().cards) {
        Some(card) => status(device.set(card + FIRST)),
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, device: Out<usize>) -> c_int {
    // An index without a card is an invalid argument here, not "not found".
    if index as usize >= settings().cards { INVALID_ARGUMENT } else { handle(device, Some(index as usize)) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<usize>) -> c_int {
    nvmlDeviceGetHandleByIndex(index, device)
}

fn by_text(text: Text, device: Out<usize>, of: impl Fn(c_int) -> String) -> c_int {
    let Ok(text) = text.get() else { return INVALID_ARGUMENT };
    // Bus addresses may have eight digits for the domain.
    let is = |card: &usize| text.to_ascii_lowercase().ends_with(&of(*card as c_int).to_ascii_lowercase());
    handle(device, (0..settings().cards).find(is))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId(text: Text, device: Out<usize>) -> c_int {
    by_text(text, device, card::bus_text)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(text: Text, device: Out<usize>) -> c_int {
    by_text(text, device, card::bus_text)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(text: Text, device: Out<usize>) -> c_int {
    by_text(text, device, card::uuid_text)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: usize, index: Out<c_uint>) -> c_int {
    status(card_of(device).and_then(|card| index.set(card as c_uint)))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMinorNumber(device: usize, number: Out<c_uint>) -> c_int {
    nvmlDeviceGetIndex(device, number)
}

fn text(device: usize, room: Out<u8>, capacity: c_uint, of: impl Fn(usize) -> String) -> c_int {
    let Ok(card) = card_of(device) else { return INVALID_ARGUMENT };
    let text = of(card);
    if text.len() >= capacity as usize {
        return INSUFFICIENT_SIZE;
    }
    status(write_text(room, capacity as usize, &text))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: usize, room: Out<u8>, capacity: c_uint) -> c_int {
    text(device, room, capacity, |_| settings().name.clone())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: usize, room: Out<u8>, capacity: c_uint) -> c_int {
    text(device, room, capacity, |card| card::uuid_text(card as c_int))
}

/// Total, free and used bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: usize, memory: Out<Memory>) -> c_int {
    status(card_of(device).and_then(|card| {
        let (total, free) = (settings().memory, shared::free(card));
        memory.set(Memory { total, free, used: total - free })
    }))
}

/// As `Memory`, with the driver's own memory, which is part of what the settings leave out.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryWithReserved {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: usize, memory: Out<MemoryWithReserved>) -> c_int {
    status(card_of(device).and_then(|card| {
        let (total, free, version) = (settings().memory, shared::free(card), memory.get()?.version);
        memory.set(MemoryWithReserved { version, total, reserved: 0, free, used: total - free })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(device: usize, major: Out<c_int>, minor: Out<c_int>) -> c_int {
    status(card_of(device).and_then(|_| {
        major.set(settings().capability.0)?;
        minor.set(settings().capability.1)
    }))
}

/// Shares of time in which kernels ran and memory was used: 0, because nothing takes time.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(device: usize, rates: Out<[c_uint; 2]>) -> c_int {
    status(card_of(device).and_then(|_| rates.set([0, 0])))
}

/// A process and its memory, as the first version of the function returns it.
#[repr(C)]
#[derive(Clone, Copy)]
struct ShortProcess {
    pid: c_uint,
    used: u64,
}

/// A process and its memory, and its part of a divided card.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    pid: c_uint,
    used: u64,
    instances: [c_uint; 2],
}

/// Writes the processes that use a card, if there is room for all.
fn processes<T: Copy>(device: usize, count: Out<c_uint>, room: Out<T>, entry: impl Fn(c_uint, u64) -> T) -> c_int {
    let Ok(card) = card_of(device) else { return INVALID_ARGUMENT };
    let Ok(capacity) = count.get() else { return INVALID_ARGUMENT };
    let active = context::is_active(card);
    let own = u64::from(std::process::id());
    let uses = |slot: &shared::Slot| slot.used[card] > 0 || (slot.pid == own && active);
    let found: Vec<shared::Slot> = shared::processes().into_iter().filter(uses).collect();
    count.offer(found.len() as c_uint);
    if found.len() > capacity as usize {
        return INSUFFICIENT_SIZE;
    }
    let write = |(index, slot): (usize, &shared::Slot)| room.set_at(index, entry(slot.pid as c_uint, slot.used[card]));
    status(found.iter().enumerate().try_for_each(write))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: usize,
    count: Out<c_uint>,
    room: Out<ShortProcess>,
) -> c_int {
    processes(device, count, room, |pid, used| ShortProcess { pid, used })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(device: usize, count: Out<c_uint>, room: Out<Process>) -> c_int {
    nvmlDeviceGetComputeRunningProcesses_v3(device, count, room)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(device: usize, count: Out<c_uint>, room: Out<Process>) -> c_int {
    processes(device, count, room, |pid, used| Process { pid, used, instances: [c_uint::MAX; 2] })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(room: Out<u8>, capacity: c_uint) -> c_int {
    // First driver of each CUDA release, from its release notes.
    let version = if wheel::is_cuda_12() { "525.60.13" } else { "580.65.06" };
    status(write_text(room, capacity as usize, version))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion(version: Out<c_int>) -> c_int {
    status(version.set(wheel::cuda()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> c_int {
    nvmlSystemGetCudaDriverVersion(version)
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    text: [u8; 32],
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: usize, place: Out<Place>) -> c_int {
    status(card_of(device).and_then(|card| {
        let short = card::bus_text(card as c_int);
        let bytes = |text: &str| -> Vec<u8> { text.bytes().chain(std::iter::repeat(0)).take(32).collect() };
        let (legacy, long) = (bytes(&short), bytes(&format!("0000{short}")));
        place.set(Place {
            legacy: std::array::from_fn(|index| legacy[index]),
            domain: 0,
            bus: card::bus(card as c_int) as c_uint,
            device: 0,
            device_id: 0,
            subsystem_id: 0,
            text: std::array::from_fn(|index| long[index]),
        })
    }))
}
