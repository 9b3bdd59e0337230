//! A card's properties (`cudaDeviceProp`), in the layout of the program's CUDA.

use std::ffi::c_int;

use crate::answer::{Answer, runtime};
use crate::argument::Out;
use crate::card::{self, architecture};
use crate::settings::settings;
use crate::{context, wheel};

/// Type of a field's elements.
#[derive(Clone, Copy)]
enum Element {
    Bytes,
    Int,
    Size,
}

use Element::{Bytes, Int, Size};

/// First and last release that has a field.
type Releases = (c_int, c_int);

const ALL: Releases = (11, c_int::MAX);
const TO_12: Releases = (11, 12);
const FROM_13: Releases = (13, c_int::MAX);

/// Last field of CUDA 11.
const LAST_OF_11: &str = "reservedSharedMemPerBlock";

/// Fields in their order: name, element type, number of elements, releases.
const FIELDS: &[(&str, Element, usize, Releases)] = &[
    ("name", Bytes, 256, ALL),
    ("uuid", Bytes, 16, ALL),
    ("luid", Bytes, 8, ALL),
    ("luidDeviceNodeMask", Int, 1, ALL),
    ("totalGlobalMem", Size, 1, ALL),
    ("sharedMemPerBlock", Size, 1, ALL),
    ("regsPerBlock", Int, 1, ALL),
    ("warpSize", Int, 1, ALL),
    ("memPitch", Size, 1, ALL),
    ("maxThreadsPerBlock", Int, 1, ALL),
    ("maxThreadsDim", Int, 3, ALL),
    ("maxGridSize", Int, 3, ALL),
    ("clockRate", Int, 1, TO_12),
    ("totalConstMem", Size, 1, ALL),
    ("major", Int, 1, ALL),
    ("minor", Int, 1, ALL),
    ("textureAlignment", Size, 1, ALL),
    ("texturePitchAlignment", Size, 1, ALL),
    ("deviceOverlap", Int, 1, TO_12),
    ("multiProcessorCount", Int, 1, ALL),
    ("kernelExecTimeoutEnabled", Int, 1, TO_12),
    ("integrated", Int, 1, ALL),
    ("canMapHostMemory", Int, 1, ALL),
    ("computeMode", Int, 1, TO_12),
    ("maxTexture1D", Int, 1, ALL),
    ("maxTexture1DMipmap", Int, 1, ALL),
    ("maxTexture1DLinear", Int, 1, TO_12),
    ("maxTexture2D", Int, 2, ALL),
    ("maxTexture2DMipmap", Int, 2, ALL),
    ("maxTexture2DLinear", Int, 3, ALL),
    ("maxTexture2DGather", Int, 2, ALL),
    ("maxTexture3D", Int, 3, ALL),
    ("maxTexture3DAlt", Int, 3, ALL),
    ("maxTextureCubemap", Int, 1, ALL),
    ("maxTexture1DLayered", Int, 2, ALL),
    ("maxTexture2DLayered", Int, 3, ALL),
    ("maxTextureCubemapLayered", Int, 2, ALL),
    ("maxSurface1D", Int, 1, ALL),
    ("maxSurface2D", Int, 2, ALL),
    ("maxSurface3D", Int, 3, ALL),
    ("maxSurface1DLayered", Int, 2, ALL),
    ("maxSurface2DLayered", Int, 3, ALL),
    ("maxSurfaceCubemap", Int, 1, ALL),
    ("maxSurfaceCubemapLayered", Int, 2, ALL),
    ("surfaceAlignment", Size, 1, ALL),
    ("concurrentKernels", Int, 1, ALL),
    ("ECCEnabled", Int, 1, ALL),
    ("pciBusID", Int, 1, ALL),
    ("pciDeviceID", Int, 1, ALL),
    ("pciDomainID", Int, 1, ALL),
    ("tccDriver", Int, 1, ALL),
    ("asyncEngineCount", Int, 1, ALL),
    ("unifiedAddressing", Int, 1, ALL),
    ("memoryClockRate", Int, 1, TO_12),
    ("memoryBusWidth", Int, 1, ALL),
    ("l2CacheSize", Int, 1, ALL),
    ("persistingL2CacheMaxSize", Int, 1, ALL),
    ("maxThreadsPerMultiProcessor", Int, 1, ALL),
    ("streamPrioritiesSupported", Int, 1, ALL),
    ("globalL1CacheSupported", Int, 1, ALL),
    ("localL1CacheSupported", Int, 1, ALL),
    ("sharedMemPerMultiprocessor", Size, 1, ALL),
    ("regsPerMultiprocessor", Int, 1, ALL),
    ("managedMemory", Int, 1, ALL),
    ("isMultiGpuBoard", Int, 1, ALL),
    ("multiGpuBoardGroupID", Int, 1, ALL),
    ("hostNativeAtomicSupported", Int, 1, ALL),
    ("singleToDoublePrecisionPerfRatio", Int, 1, TO_12),
    ("pageableMemoryAccess", Int, 1, ALL),
    ("concurrentManagedAccess", Int, 1, ALL),
    ("computePreemptionSupported", Int, 1, ALL),
    ("canUseHostPointerForRegisteredMem", Int, 1, ALL),
    ("cooperativeLaunch", Int, 1, ALL),
    ("cooperativeMultiDeviceLaunch", Int, 1, TO_12),
    ("sharedMemPerBlockOptin", Size, 1, ALL),
    ("pageableMemoryAccessUsesHostPageTables", Int, 1, ALL),
    ("directManagedMemAccessFromHost", Int, 1, ALL),
    ("maxBlocksPerMultiProcessor", Int, 1, ALL),
    ("accessPolicyMaxWindowSize", Int, 1, ALL),
    ("reservedSharedMemPerBlock", Size, 1, ALL),
    ("hostRegisterSupported", Int, 1, ALL),
    ("sparseCudaArraySupported", Int, 1, ALL),
    ("hostRegisterReadOnlySupported", Int, 1, ALL),
    ("timelineSemaphoreInteropSupported", Int, 1, ALL),
    ("memoryPoolsSupported", Int, 1, ALL),
    ("gpuDirectRDMASupported", Int, 1, ALL),
    ("gpuDirectRDMAFlushWritesOptions", Int, 1, ALL),
    ("gpuDirectRDMAWritesOrdering", Int, 1, ALL),
    ("memoryPoolSupportedHandleTypes", Int, 1, ALL),
    ("deferredMappingCudaArraySupported", Int, 1, ALL),
    ("ipcEventSupported", Int, 1, ALL),
    ("clusterLaunch", Int, 1, ALL),
    ("unifiedFunctionPointers", Int, 1, ALL),
    ("deviceNumaConfig", Int, 1, FROM_13),
    ("deviceNumaId", Int, 1, FROM_13),
    ("mpsEnabled", Int, 1, FROM_13),
    ("hostNumaId", Int, 1, FROM_13),
    ("gpuPciDeviceID", Int, 1, FROM_13),
    ("gpuPciSubsystemID", Int, 1, FROM_13),
    ("hostNumaMultinodeIpcSupported", Int, 1, FROM_13),
    ("reserved", Int, 63, TO_12),
    ("reserved", Int, 56, FROM_13),
];

/// The properties as bytes. Fields that are not set are 0.
struct Properties {
    release: c_int,
    bytes: Vec<u8>,
}

impl Properties {
    /// Returns the start of a field, and the size of the structure up to its end.
    fn place(&self, wanted: &str) -> Option<(usize, usize)> {
        let mut end = 0_usize;
        for (name, element, count, (from, to)) in FIELDS {
            if !(*from..=*to).contains(&self.release) {
                continue;
            }
            let size = match element {
                Bytes => 1,
                Int => 4,
                Size => 8,
            };
            let start = end.next_multiple_of(size);
            end = start + size * count;
            if *name == wanted {
                return Some((start, end));
            }
        }
        None
    }

    fn new(release: c_int) -> Self {
        let mut properties = Self { release, bytes: Vec::new() };
        let last = if release < 12 { LAST_OF_11 } else { "reserved" };
        let size = properties.place(last).map_or(0, |(_, end)| end.next_multiple_of(8));
        properties.bytes = vec![0; size];
        properties
    }

    /// Sets a field, if this release has it.
    fn put(&mut self, name: &str, value: &[u8]) {
        if let Some((start, end)) = self.place(name)
            && start + value.len() <= end.min(self.bytes.len())
        {
            self.bytes[start..start + value.len()].copy_from_slice(value);
        }
    }

    fn ints(&mut self, name: &str, values: &[c_int]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.put(name, &bytes);
    }

    fn size(&mut self, name: &str, value: u64) {
        self.put(name, &value.to_ne_bytes());
    }

    fn describe(&mut self, number: c_int) {
        let settings = settings();
        let length = settings.name.len().min(255);
        self.put("name", &settings.name.as_bytes()[..length]);
        self.put("uuid", &card::uuid(number));
        self.size("totalGlobalMem", settings.memory);
        for (name, attribute) in ATTRIBUTES {
            let value = card::attribute(*attribute, number);
            match FIELDS.iter().find(|field| field.0 == *name) {
                Some((_, Size, ..)) => self.size(name, value as u64),
                _ => self.ints(name, &[value]),
            }
        }
        self.ints("maxThreadsDim", &[1024, 1024, 64]);
        self.ints("maxGridSize", &[c_int::MAX, 65535, 65535]);
        self.ints("l2CacheSize", &[architecture().l2_bytes]);
        self.ints("singleToDoublePrecisionPerfRatio", &[2]);
        // No NUMA node of the host.
        self.ints("hostNumaId", &[-1]);
        self.ints("deviceNumaId", &[-1]);
    }
}

/// Fields that are also attributes, with the attributes' numbers.
const ATTRIBUTES: &[(&str, c_int)] = &[
    ("sharedMemPerBlock", 8),
    ("regsPerBlock", 12),
    ("warpSize", 10),
    ("memPitch", 11),
    ("maxThreadsPerBlock", 1),
    ("clockRate", 13),
    ("totalConstMem", 9),
    ("major", 75),
    ("minor", 76),
    ("textureAlignment", 14),
    ("texturePitchAlignment", 51),
    ("deviceOverlap", 15),
    ("multiProcessorCount", 16),
    ("canMapHostMemory", 19),
    ("surfaceAlignment", 14),
    ("concurrentKernels", 31),
    ("ECCEnabled", 32),
    ("pciBusID", 33),
    ("asyncEngineCount", 40),
    ("unifiedAddressing", 41),
    ("memoryClockRate", 36),
    ("memoryBusWidth", 37),
    ("maxThreadsPerMultiProcessor", 39),
    ("streamPrioritiesSupported", 78),
    ("globalL1CacheSupported", 79),
    ("localL1CacheSupported", 80),
    ("sharedMemPerMultiprocessor", 81),
    ("regsPerMultiprocessor", 82),
    ("managedMemory", 83),
    ("concurrentManagedAccess", 89),
    ("computePreemptionSupported", 90),
    ("cooperativeLaunch", 95),
    ("cooperativeMultiDeviceLaunch", 95),
    ("sharedMemPerBlockOptin", 97),
    ("maxBlocksPerMultiProcessor", 106),
    ("reservedSharedMemPerBlock", 111),
    ("hostRegisterSupported", 99),
    ("memoryPoolsSupported", 115),
    ("ipcEventSupported", 125),
    ("clusterLaunch", 120),
];

fn write(room: Out<u8>, number: c_int, release: c_int) -> Answer {
    context::card(number)?;
    let mut properties = Properties::new(release);
    properties.describe(number);
    properties.bytes.iter().enumerate().try_for_each(|(index, byte)| room.set_at(index, *byte))
}

/// Layout of CUDA 13. Programs of CUDA 12 that ask under this name were compiled for CUDA 11.
#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceProperties(room: Out<u8>, number: c_int) -> c_int {
    runtime(write(room, number, if wheel::is_cuda_12() { 11 } else { 13 }))
}

/// Layout of CUDA 12.
#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceProperties_v2(room: Out<u8>, number: c_int) -> c_int {
    runtime(write(room, number, 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        // Sizes and offsets from a C compiler, for the public headers of CUDA 12.8 and 13.0.
        for (release, size, multiprocessors, clusters) in [(12, 1032, 388, 772), (13, 1008, 384, 748)] {
            let properties = Properties::new(release);
            let start = |name| properties.place(name).map(|(start, _)| start);
            assert_eq!(properties.bytes.len(), size);
            assert_eq!(start("major"), Some(360));
            assert_eq!(start("multiProcessorCount"), Some(multiprocessors));
            assert_eq!(start("clusterLaunch"), Some(clusters));
        }
    }
}
