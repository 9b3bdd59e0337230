//! [`Cpu`]: the backend's two traits, and the dispatch of kernels to their families.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::DType;
use memcore::backend::{
    Backend, Bound, DeviceMemory, KernelCall, Limits, MemoryInfo, Region, SegmentId, VirtualMemory,
};
use memcore::error::Result;

use crate::memory::{ALIGNMENT, Table};
use crate::parallel::Threads;
use crate::view::Context;
use crate::{
    attention, conv, elementwise, index, loss, matmul, norm, optim, pool, quant, random, reduce, roof, softmax,
};

/// The CPU as a device (see the crate's documentation).
pub struct Cpu {
    limits: Limits,
    /// Every launch locks it: one launch runs at a time, as on the contract's single queue.
    table: Mutex<Table>,
    threads: Threads,
}

impl Cpu {
    /// Makes a device with the threads that all devices share: one per core unless `RAYON_NUM_THREADS` says otherwise. If no thread can be made,
    /// the calling thread works alone.
    ///
    /// # Errors
    /// [`Error::Backend`](memcore::Error::Backend) if the scratch cannot be allocated.
    pub fn new() -> Result<Self> {
        Self::build(None)
    }

    /// Makes a device with `threads` threads of its own (0: one per core). Results do not depend on their number.
    ///
    /// # Errors
    /// [`Error::Backend`](memcore::Error::Backend) if threads or scratch cannot be made.
    pub fn with_threads(threads: usize) -> Result<Self> {
        Self::build(Some(threads))
    }

    /// Number of threads on which kernels run.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    fn build(threads: Option<usize>) -> Result<Self> {
        let table = Table::new();
        let limits = Limits {
            alignment: ALIGNMENT,
            max_segment_bytes: table.max_segment_bytes,
            max_binding_bytes: u64::MAX,
            dtypes: DType::ALL.to_vec(),
        };
        Ok(Self { limits, table: Mutex::new(table), threads: Threads::new(threads)? })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for Cpu {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        self.table().alloc(bytes)
    }

    fn free_segment(&self, id: SegmentId) {
        // A running kernel holds the table, so that this waits for the kernel.
        self.table().free(id);
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        self.table().memory_info()
    }

    fn host_memory(&self) -> bool {
        true
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        // On other systems a reservation would take memory immediately.
        if cfg!(unix) { Some(self) } else { None }
    }
}

impl VirtualMemory for Cpu {
    fn reserve(&self, bytes: u64, _: u64) -> Result<SegmentId> {
        self.table().reserve(bytes)
    }

    fn map(&self, id: SegmentId, offset: u64, bytes: u64) -> Result<()> {
        self.table().map(id, offset, bytes)
    }

    fn unmap(&self, id: SegmentId, offset: u64, bytes: u64) {
        self.table().unmap(id, offset, bytes);
    }

    fn release(&self, id: SegmentId) {
        self.table().free(id);
    }
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn how_it_copies(&self) -> Option<&'static str> {
        Some(
            "on the processor the device's memory is the host's: there is no bus, a copy is a copy in memory, and nothing could be pinned",
        )
    }

    fn device_name(&self) -> String {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        match model {
            Some((_, model)) => format!("{}, {} threads", model.trim(), self.threads()),
            None => format!("{}, {} threads", std::env::consts::ARCH, self.threads()),
        }
    }

    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        let table = self.table();
        dst.check_host_len(src.len())?;
        let to = table.address(dst)?;
        // SAFETY: `address` checked that the region lies in a live segment; host memory of a caller is never part of one.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), to, src.len()) };
        Ok(())
    }

    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        let table = self.table();
        src.check_host_len(dst.len())?;
        let from = table.address(src)?;
        // SAFETY: as in `upload`.
        unsafe { std::ptr::copy_nonoverlapping(from, dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        let ctx = Context { table: self.table(), threads: &self.threads };
        dispatch(&ctx, call)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn supports(&self, call: &KernelCall) -> bool {
        supports(call)
    }

    fn workspace_bytes(&self, call: &KernelCall) -> u64 {
        workspace_bytes(call)
    }

    fn scratch_bytes(&self) -> u64 {
        self.threads.scratch_bytes()
    }

    fn roof(&self, bound: Bound, seconds: f64) -> Option<f64> {
        // The device's threads are one launch's at a time.
        let _table = self.table();
        roof::roof(&self.threads, bound, seconds)
    }
}

/// True if a family has the kernel for these types and shapes.
fn supports(call: &KernelCall) -> bool {
    match call {
        KernelCall::Unary(k) => elementwise::supports_unary(k),
        KernelCall::Binary(k) => elementwise::supports_binary(k),
        KernelCall::Reduce(k) => reduce::supports(k),
        KernelCall::BatchNorm(k) => norm::supports_channels(k.x.dims()[1]),
        KernelCall::BatchNormGrad(k) => norm::supports_channels(k.x.dims()[1]),
        KernelCall::Pool2d(k) => pool::supports(&k.x),
        KernelCall::Attention(k) => attention::supports(&k.q, &k.v),
        KernelCall::AttentionGrad(k) => attention::supports(&k.q, &k.v),
        _ => true,
    }
}

/// Workspace that a family's own algorithm needs from core.
fn workspace_bytes(_call: &KernelCall) -> u64 {
    0
}

fn dispatch(ctx: &Context<'_>, call: &KernelCall) -> Result<()> {
    memcore::by_family!(call, ctx)
}
