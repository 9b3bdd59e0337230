//! Vulkan, Metal and DX12 for vramlab, through wgpu; kernels in WGSL.

mod adapter;
mod backend;
mod driver;
mod element;
mod elementwise;
mod gpu;
mod job;
mod pipelines;
mod pointwise;
mod queue;
mod segments;
mod transfer;

pub use adapter::{AdapterInfo, NO_ADAPTER, adapters};
pub use backend::{Statistics, Wgpu};

/// The backend's name.
pub(crate) const NAME: &str = "wgpu";
