//! Modules, their kernels, and launches. Images are not read: every kernel has the figures of a modest one.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, Code, driver};
use crate::argument::{In, Out};
use crate::card::{MAX_THREADS, multiprocessors, resident_blocks};
use crate::exports::exports;
use crate::kernels::{self, Dim3, Launch};
use crate::settings::settings;
use crate::{context, handles, memory, told};

exports! {
    driver cuModuleLoad, driver cuModuleLoadData, driver cuModuleLoadDataEx, driver cuModuleLoadFatBinary,
    driver cuModuleGetFunction, driver cuLibraryLoadData, driver cuLibraryLoadFromFile, driver cuLibraryGetKernel,
    driver cuLibraryGetModule, driver cuKernelGetFunction(handle: Out<usize>) {
        context::used()?;
        handle.set(handles::new())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(_module: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryUnload(_library: usize) -> c_int {
    0
}

/// Modules are loaded lazily by default.
#[unsafe(no_mangle)]
extern "C" fn cuModuleGetLoadingMode(mode: Out<c_int>) -> c_int {
    const EAGER: c_int = 1;
    const LAZY: c_int = 2;
    driver(mode.set(if context::loads_all_modules() { EAGER } else { LAZY }))
}

/// Returns a variable of a module. Its size is in the image, which is not read; a page is enough for the variables that
/// programs set.
#[unsafe(no_mangle)]
extern "C" fn cuModuleGetGlobal_v2(address: Out<usize>, bytes: Out<usize>, _module: usize, _name: usize) -> c_int {
    const BYTES: usize = 4096;
    driver(context::used().and_then(|card| {
        let placed = memory::place(card, BYTES, memory::Origin::Imported)?;
        address.offer(placed);
        bytes.offer(BYTES);
        Ok(())
    }))
}

/// Attributes of a kernel by number: threads, shared, constant and local memory, registers, versions.
fn attribute(number: c_int) -> Answer<c_int> {
    let (major, minor) = settings().capability;
    match number {
        0 => Ok(MAX_THREADS),
        4 => Ok(32),
        5 | 6 => Ok(major * 10 + minor),
        8 => Ok(crate::card::SHARED_PER_BLOCK),
        1..=3 | 7 | 9..=15 => Ok(0),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: Out<c_int>, number: c_int, _function: usize) -> c_int {
    driver(attribute(number).and_then(|found| value.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetAttribute(value: Out<c_int>, number: c_int, _kernel: usize, _device: c_int) -> c_int {
    driver(attribute(number).and_then(|found| value.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(_function: usize, number: c_int, value: c_int) -> c_int {
    driver(kernels::check_attribute(number, value))
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelSetAttribute(number: c_int, value: c_int, _kernel: usize, _device: c_int) -> c_int {
    driver(kernels::check_attribute(number, value))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(_function: usize, _preference: c_int) -> c_int {
    0
}

fn launch(grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint, stream: usize) -> c_int {
    let dim = |[x, y, z]: [c_uint; 3]| Dim3 { x, y, z };
    let launch = Launch { grid: dim(grid), block: dim(block), shared: shared as usize, stream };
    // Kernels launched here are not from the wheel, and may write to any tensor.
    told::anything_written();
    driver(context::used().and_then(|_| kernels::launch_loaded(launch)))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    _function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: usize,
) -> c_int {
    launch([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchCooperativeKernel(
    _function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: usize,
) -> c_int {
    launch([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared, stream)
}

/// The beginning of `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Configuration {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: usize,
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(configuration: In<Configuration>) -> c_int {
    match configuration.get() {
        Ok(Configuration { grid, block, shared, stream }) => launch(grid, block, shared, stream),
        Err(code) => driver(Err(code)),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<c_int>,
    _function: usize,
    threads: c_int,
    shared: usize,
) -> c_int {
    driver(blocks.set(resident_blocks(threads, shared)))
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<c_int>,
    function: usize,
    threads: c_int,
    shared: usize,
    _flags: c_uint,
) -> c_int {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared)
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveClusters(clusters: Out<c_int>, _function: usize, _configuration: usize) -> c_int {
    const PORTABLE_CLUSTER: c_int = 8;
    driver(clusters.set(multiprocessors() / PORTABLE_CLUSTER))
}
