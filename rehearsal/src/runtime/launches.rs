//! Kernels and their images: the functions that code compiled by nvcc calls to register and launch.

use std::ffi::{c_char, c_int, c_uint};

use crate::answer::{Answer, Code, runtime};
use crate::argument::{In, Out, Text};
use crate::card::{MAX_THREADS, SHARED_PER_BLOCK, architecture, resident_blocks};
use crate::exports::exports;
use crate::images::{self, Image};
use crate::kernels::{self, Dim3, Launch};
use crate::settings::settings;
use crate::{context, handles, symbols};

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(wrapper: In<images::Wrapper>) -> usize {
    images::register(wrapper)
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_container: usize) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(container: usize) {
    images::unregister(container);
}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_container: usize) -> c_char {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(
    container: usize,
    function: usize,
    _device_function: usize,
    name: Text,
    _thread_limit: c_int,
) {
    images::register_kernel(container, function, name.get().unwrap_or_default());
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(
    _container: usize,
    shadow: usize,
    _device_address: usize,
    _name: Text,
    _is_external: c_int,
    bytes: usize,
) {
    symbols::register(shadow, bytes);
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: usize) -> c_uint {
    kernels::push(Launch { grid, block, shared, stream });
    0
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared: Out<usize>,
    stream: Out<usize>,
) -> c_int {
    runtime(kernels::pop().and_then(|launch| {
        grid.set(launch.grid)?;
        block.set(launch.block)?;
        shared.set(launch.shared)?;
        stream.set(launch.stream)
    }))
}

exports! {
    /// The address of a kernel's function on the host identifies the kernel.
    runtime __cudaGetKernel, runtime cudaGetKernel, runtime cudaGetFuncBySymbol(found: Out<usize>, function: usize) {
        found.set(function)
    }

    runtime __cudaLaunchKernel, runtime cudaLaunchKernel, runtime cudaLaunchCooperativeKernel(
        function: usize, grid: Dim3, block: Dim3, _arguments: usize, shared: usize, stream: usize,
    ) {
        kernels::launch(function, Launch { grid, block, shared, stream })
    }
}

/// The beginning of `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernelExC(configuration: In<Configuration>, function: usize, _arguments: usize) -> c_int {
    runtime(configuration.get().and_then(|configuration| {
        let Configuration { grid, block, shared, stream } = configuration;
        kernels::launch(function, Launch { grid, block, shared, stream })
    }))
}

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    shared: usize,
    constants: usize,
    local: usize,
    max_threads: c_int,
    registers: c_int,
    ptx: c_int,
    binary: c_int,
    cache_mode: c_int,
    max_dynamic_shared: c_int,
    carveout: c_int,
    cluster: [c_int; 6],
    reserved: [c_int; 16],
}

/// A kernel's needs are in its image, which is not read: these are the figures of a modest kernel. Its architecture is
/// that of the image, by which programs choose among the architectures that they were compiled for (cub).
#[unsafe(no_mangle)]
extern "C" fn cudaFuncGetAttributes(attributes: Out<Attributes>, function: usize) -> c_int {
    let (major, minor) = settings().capability;
    let answer = || -> Answer {
        context::used()?;
        if function == 0 {
            return Err(Code::INVALID_DEVICE_FUNCTION);
        }
        let card = major * 10 + minor;
        let (ptx, binary) = match images::image(function) {
            Image::Missing => return Err(Code::NO_KERNEL_IMAGE),
            Image::Unknown => (card, card),
            Image::Code(of) => (of as c_int, of as c_int),
            Image::Ptx(of) => (of as c_int, card),
        };
        attributes.set(Attributes {
            shared: 0,
            constants: 0,
            local: 0,
            max_threads: MAX_THREADS,
            registers: 32,
            ptx,
            binary,
            cache_mode: 0,
            max_dynamic_shared: SHARED_PER_BLOCK,
            carveout: -1,
            cluster: [0; 6],
            reserved: [0; 16],
        })
    };
    runtime(answer())
}

#[unsafe(no_mangle)]
extern "C" fn cudaFuncSetAttribute(_function: usize, attribute: c_int, value: c_int) -> c_int {
    runtime(kernels::check_attribute(attribute, value))
}

#[unsafe(no_mangle)]
extern "C" fn cudaKernelSetAttributeForDevice(_kernel: usize, attribute: c_int, value: c_int, card: c_int) -> c_int {
    runtime(context::card(card).and_then(|_| kernels::check_attribute(attribute, value)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaFuncSetCacheConfig(_function: usize, _preference: c_int) -> c_int {
    0
}

fn occupancy(blocks: Out<c_int>, threads: c_int, shared: usize) -> Answer {
    context::used()?;
    blocks.set(resident_blocks(threads, shared))
}

exports! {
    runtime cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>, _function: usize, threads: c_int, shared: usize,
    ) {
        occupancy(blocks, threads, shared)
    }

    runtime cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>, _function: usize, threads: c_int, shared: usize, _flags: c_uint,
    ) {
        occupancy(blocks, threads, shared)
    }

    /// Libraries and kernels that are loaded explicitly. Their images are not read.
    runtime cudaLibraryLoadData, runtime cudaLibraryLoadFromFile(library: Out<usize>, _code: usize) {
        library.set(handles::new())
    }

    runtime cudaLibraryGetKernel(kernel: Out<usize>, _library: usize, _name: Text) {
        kernel.set(handles::new())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyAvailableDynamicSMemPerBlock(
    bytes: Out<usize>,
    _function: usize,
    blocks: c_int,
    _threads: c_int,
) -> c_int {
    let architecture = architecture();
    let each = architecture.shared_per_multiprocessor.checked_div(blocks).unwrap_or(0) - architecture.shared_reserved;
    runtime(bytes.set(each.clamp(0, architecture.shared_opt_in) as usize))
}

/// Size of a cluster that every card of capability 9.0 and later can run.
const PORTABLE_CLUSTER: c_int = 8;

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxPotentialClusterSize(size: Out<c_int>, _function: usize, _configuration: usize) -> c_int {
    runtime(size.set(PORTABLE_CLUSTER))
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxActiveClusters(clusters: Out<c_int>, _function: usize, _configuration: usize) -> c_int {
    runtime(clusters.set(crate::card::multiprocessors() / PORTABLE_CLUSTER))
}
