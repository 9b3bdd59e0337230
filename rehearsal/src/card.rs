//! Figures of the card: those of the settings, and those that follow from its compute capability.
//!
//! The latter are from the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".

use std::ffi::c_int;

use crate::settings::settings;

/// Figures that follow from the compute capability.
#[derive(Clone, Copy)]
pub(crate) struct Architecture {
    pub(crate) threads_per_multiprocessor: c_int,
    pub(crate) blocks_per_multiprocessor: c_int,
    pub(crate) shared_per_multiprocessor: c_int,
    /// Most shared memory of a block that a kernel can opt in to, beyond the limit for every kernel.
    pub(crate) shared_opt_in: c_int,
    /// Shared memory of each block that the system takes.
    pub(crate) shared_reserved: c_int,
    pub(crate) l2_bytes: c_int,
    /// Number of multiprocessors of a usual card, if the settings have none.
    pub(crate) usual_multiprocessors: c_int,
    /// Clocks of a usual card: of the multiprocessors at most, and of the memory.
    pub(crate) clock_khz: c_int,
    pub(crate) memory_clock_khz: c_int,
}

const KIB: c_int = 1024;
const MIB: c_int = 1024 * KIB;

/// Capability; threads and blocks per multiprocessor, KiB of shared memory per multiprocessor and by opt-in; then of a
/// usual card (its data sheet) multiprocessors, MiB of L2 cache, and MHz of multiprocessors and memory.
const ARCHITECTURES: &[((c_int, c_int), [c_int; 8])] = &[
    ((5, 0), [2048, 32, 64, 48, 5, 2, 1085, 2700]),
    ((5, 2), [2048, 32, 96, 48, 24, 3, 1112, 3004]),
    ((6, 0), [2048, 32, 64, 48, 56, 4, 1480, 715]),
    ((6, 1), [2048, 32, 96, 48, 28, 3, 1582, 5505]),
    ((7, 0), [2048, 32, 96, 96, 80, 6, 1530, 877]),
    ((7, 5), [1024, 16, 64, 64, 40, 4, 1590, 5001]),
    ((8, 0), [2048, 32, 164, 163, 108, 40, 1410, 1215]),
    ((8, 6), [1536, 16, 100, 99, 82, 6, 1695, 9751]),
    ((8, 7), [1536, 16, 164, 163, 16, 4, 1300, 3200]),
    ((8, 9), [1536, 24, 100, 99, 128, 72, 2520, 10501]),
    ((9, 0), [2048, 32, 228, 227, 132, 50, 1980, 2619]),
    ((10, 0), [2048, 32, 228, 227, 148, 126, 1965, 3996]),
    ((10, 3), [2048, 32, 228, 227, 148, 126, 1965, 3996]),
    ((11, 0), [1536, 24, 228, 227, 20, 32, 1575, 4266]),
    ((12, 0), [1536, 24, 100, 99, 170, 96, 2407, 14001]),
    ((12, 1), [1536, 24, 100, 99, 48, 24, 2418, 4266]),
];

impl Architecture {
    /// Returns the figures of a capability, or of the next one below.
    pub(crate) fn by_capability(capability: (c_int, c_int)) -> Self {
        let found = ARCHITECTURES.iter().rev().find(|(from, _)| *from <= capability).unwrap_or(&ARCHITECTURES[0]);
        let [threads, blocks, shared, opt_in, multiprocessors, l2, clock, memory_clock] = found.1;
        Self {
            threads_per_multiprocessor: threads,
            blocks_per_multiprocessor: blocks,
            shared_per_multiprocessor: shared * KIB,
            shared_opt_in: opt_in * KIB,
            shared_reserved: if capability.0 >= 8 { KIB } else { 0 },
            l2_bytes: l2 * MIB,
            usual_multiprocessors: multiprocessors,
            clock_khz: clock * 1000,
            memory_clock_khz: memory_clock * 1000,
        }
    }
}

/// Returns the figures of the card's capability.
pub(crate) fn architecture() -> Architecture {
    Architecture::by_capability(settings().capability)
}

/// Number of multiprocessors of the card.
pub(crate) fn multiprocessors() -> c_int {
    settings().multiprocessors.unwrap_or(architecture().usual_multiprocessors)
}

/// Shared memory that every block may have, in bytes.
pub(crate) const SHARED_PER_BLOCK: c_int = 48 * KIB;

/// Most threads of a block.
pub(crate) const MAX_THREADS: c_int = 1024;

/// PCI bus of a card: each card has another one.
pub(crate) fn bus(card: c_int) -> c_int {
    4 + card
}

/// PCI address of a card, as text.
pub(crate) fn bus_text(card: c_int) -> String {
    format!("0000:{:02X}:00.0", bus(card))
}

/// UUID of a card.
pub(crate) fn uuid(card: c_int) -> [u8; 16] {
    let mut bytes = *b"rehearsed card \0";
    bytes[15] = card as u8;
    bytes
}

/// UUID of a card, as text.
pub(crate) fn uuid_text(card: c_int) -> String {
    let hex: Vec<String> = uuid(card).iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16))
}

/// Returns an attribute by its number, which runtime and driver share. Attributes that are not listed are 0.
pub(crate) fn attribute(number: c_int, card: c_int) -> c_int {
    let architecture = architecture();
    let (major, minor) = settings().capability;
    match number {
        // Threads per block; size of a block in x and y, in z; size of a grid in x, in y and z.
        1..=3 => MAX_THREADS,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65535,
        8 => SHARED_PER_BLOCK,
        // Constant memory, warp size, pitch, registers of a block, clock in kHz, alignment of textures.
        9 => 65536,
        10 => 32,
        11 => c_int::MAX,
        12 => 65536,
        13 => architecture.clock_khz,
        14 => 512,
        // Copies overlap kernels; multiprocessors; host memory can be mapped; concurrent kernels; ECC.
        15 | 19 | 31 => 1,
        16 => multiprocessors(),
        32 => 1,
        33 => bus(card),
        // Memory clock in kHz, bus width, L2, threads, copy engines, unified addressing.
        36 => architecture.memory_clock_khz,
        37 => 5120,
        38 => architecture.l2_bytes,
        39 => architecture.threads_per_multiprocessor,
        40 => 3,
        41 => 1,
        51 => 32,
        75 => major,
        76 => minor,
        // Stream priorities, L1 for global and local memory.
        78..=80 => 1,
        81 => architecture.shared_per_multiprocessor,
        82 => 65536,
        // Managed memory, concurrently from host and card; preemption; cooperative launches.
        83 | 89 | 90 | 95 => 1,
        97 => architecture.shared_opt_in,
        // Registering host memory; virtual memory, and its handles as file descriptors.
        99 | 102 | 103 => 1,
        106 => architecture.blocks_per_multiprocessor,
        111 => architecture.shared_reserved,
        // Pools, and events between processes.
        115 | 125 => 1,
        // Clusters.
        120 => c_int::from(major >= 9),
        _ => 0,
    }
}

/// Number of blocks of a kernel that fit on a multiprocessor at one time, by threads and shared memory.
pub(crate) fn resident_blocks(threads: c_int, shared: usize) -> c_int {
    let architecture = architecture();
    if threads <= 0 || threads > MAX_THREADS || shared > architecture.shared_opt_in as usize {
        return 0;
    }
    // Threads are counted in warps.
    let by_threads = architecture.threads_per_multiprocessor / ((threads + 31) / 32 * 32);
    let taken = shared + architecture.shared_reserved as usize;
    let by_shared = (architecture.shared_per_multiprocessor as usize).checked_div(taken).unwrap_or(usize::MAX);
    by_threads.min(architecture.blocks_per_multiprocessor).min(c_int::try_from(by_shared).unwrap_or(c_int::MAX))
}
