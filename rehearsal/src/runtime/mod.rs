//! The CUDA runtime (libcudart). `both/` has what the driver has too.

mod copies;
mod devices;
mod errors;
mod launches;
mod memory;
mod pools;
mod properties;
