//! A shared backend is a backend: for decorators over what was chosen at run time.

use std::sync::Arc;

use super::{Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Overhead, Region, SegmentId, Tf32, VirtualMemory};
use crate::error::Result;

impl<B: DeviceMemory + ?Sized> DeviceMemory for Arc<B> {
    fn limits(&self) -> &Limits {
        (**self).limits()
    }
    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        (**self).alloc_segment(bytes)
    }
    fn free_segment(&self, id: SegmentId) {
        (**self).free_segment(id);
    }
    fn memory_info(&self) -> Option<MemoryInfo> {
        (**self).memory_info()
    }
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        (**self).virtual_memory()
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn device_name(&self) -> String {
        (**self).device_name()
    }
    fn first_use(&self) -> Option<String> {
        (**self).first_use()
    }
    fn computes(&self) -> bool {
        (**self).computes()
    }
    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        (**self).upload(src, dst)
    }
    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        (**self).download(src, dst)
    }
    fn launch(&self, call: &KernelCall) -> Result<()> {
        (**self).launch(call)
    }
    fn synchronize(&self) -> Result<()> {
        (**self).synchronize()
    }
    fn supports(&self, call: &KernelCall) -> bool {
        (**self).supports(call)
    }
    fn workspace_bytes(&self, call: &KernelCall) -> u64 {
        (**self).workspace_bytes(call)
    }
    fn scratch_bytes(&self) -> u64 {
        (**self).scratch_bytes()
    }
    fn gemm_workspace_bytes(&self) -> u64 {
        (**self).gemm_workspace_bytes()
    }
    fn use_graphs(&self) -> Result<()> {
        (**self).use_graphs()
    }
    fn allow_tf32(&self, which: Tf32) -> Result<()> {
        (**self).allow_tf32(which)
    }
    fn overheads(&self) -> Vec<Overhead> {
        (**self).overheads()
    }
}
