//! The CUDA driver (libcuda). It is never asked for by the runtime here: both stand on the same files.

mod contexts;
mod entries;
mod memory;
mod modules;
mod streams;
mod virtual_memory;
