//! The CUDA driver (libcuda). The runtime here does not call it: both use the same files.

mod contexts;
mod entries;
mod memory;
mod modules;
mod streams;
mod virtual_memory;
