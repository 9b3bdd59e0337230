//! The CUDA runtime (libcudart).

mod copies;
mod devices;
mod errors;
mod graphs;
mod host;
mod launches;
mod memory;
mod pools;
mod properties;
mod sharing;
mod streams;
