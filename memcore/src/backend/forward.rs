//! Implements the backend traits for shared pointers to a backend, so that decorators can wrap a backend chosen at run
//! time.

use std::sync::Arc;

use super::{
    Backend, Bound, DeviceMemory, KernelCall, Limits, MemoryInfo, Overhead, Region, SegmentId, Tf32, VirtualMemory,
};
use crate::error::{Error, Result};

/// Implements trait methods by calling the same methods of `to`.
macro_rules! forward {
    ($self:ident => $to:expr; $(fn $name:ident($($arg:ident: $of:ty),*) -> $out:ty;)*) => {
        $(fn $name(&$self, $($arg: $of),*) -> $out {
            $to.$name($($arg),*)
        })*
    };
}
pub(super) use forward;

/// The address space of a backend that another one wraps.
///
/// # Errors
/// [`Error::Invalid`] if it has none.
pub(super) fn virtual_memory_of<B: Backend>(inner: &B) -> Result<&dyn VirtualMemory> {
    inner.virtual_memory().ok_or_else(|| Error::invalid("virtual memory", "this backend has none"))
}

impl<B: DeviceMemory + ?Sized> DeviceMemory for Arc<B> {
    forward! { self => (**self);
        fn limits() -> &Limits;
        fn alloc_segment(bytes: u64) -> Result<SegmentId>;
        fn free_segment(id: SegmentId) -> ();
        fn memory_info() -> Option<MemoryInfo>;
        fn host_memory() -> bool;
        fn virtual_memory() -> Option<&dyn VirtualMemory>;
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    forward! { self => (**self);
        fn name() -> &str;
        fn device_name() -> String;
        fn first_use() -> Option<String>;
        fn computes() -> bool;
        fn how_it_copies() -> Option<&'static str>;
        fn upload(src: &[u8], dst: Region) -> Result<()>;
        fn download(src: Region, dst: &mut [u8]) -> Result<()>;
        fn launch(call: &KernelCall) -> Result<()>;
        fn synchronize() -> Result<()>;
        fn supports(call: &KernelCall) -> bool;
        fn workspace_bytes(call: &KernelCall) -> u64;
        fn scratch_bytes() -> u64;
        fn gemm_workspace_bytes() -> u64;
        fn use_graphs() -> Result<()>;
        fn allow_tf32(which: Tf32) -> Result<()>;
        fn roof(bound: Bound, seconds: f64) -> Option<f64>;
        fn overheads() -> Vec<Overhead>;
    }
}
