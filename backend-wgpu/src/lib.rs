//! Vulkan, Metal and DX12 for vramlab, through wgpu; kernels in WGSL.

mod adapter;
mod attention;
mod backend;
mod conv;
mod driver;
mod element;
mod elementwise;
mod gemm;
mod gpu;
mod index;
mod job;
mod loss;
mod matmul;
mod norm;
mod optim;
mod pipelines;
mod pointwise;
mod pool;
mod quant;
mod queue;
mod random;
mod reduce;
mod rows;
mod segments;
mod softmax;
mod transfer;

pub use adapter::{AdapterInfo, NO_ADAPTER, adapters};
pub use backend::{Statistics, Wgpu};

/// The backend's name.
pub(crate) const NAME: &str = "wgpu";
