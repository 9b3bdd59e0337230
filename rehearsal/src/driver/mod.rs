//! The CUDA driver (libcuda). The runtime here does not call it: both use the same files, and `both/` has what the two have alike.

mod contexts;
mod entries;
mod memory;
mod modules;
mod virtual_memory;
