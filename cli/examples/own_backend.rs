//! `vramlab` with your own backend: a table with one entry, and `main_with`. Every command knows the backend by its own description.
//!
//! This one is called `mine`, and computes with the processor's kernels.

use std::process::ExitCode;
use std::sync::Arc;

use backend_cpu::Cpu;
use cli::{About, Entry};
use memcore::Result;
use memcore::backend::{Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Region, SegmentId};

/// The backend. `MINE_LACKS` names kernels that it says not to have, separated by commas.
struct Mine {
    inner: Cpu,
    lacks: String,
}

impl DeviceMemory for Mine {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        self.inner.alloc_segment(bytes)
    }

    fn free_segment(&self, id: SegmentId) {
        self.inner.free_segment(id);
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        self.inner.memory_info()
    }
}

impl Backend for Mine {
    fn name(&self) -> &str {
        "mine"
    }

    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        self.inner.upload(src, dst)
    }

    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        self.inner.download(src, dst)
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        self.inner.launch(call)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }

    fn supports(&self, call: &KernelCall) -> bool {
        !self.lacks.split(',').any(|kernel| kernel == call.name()) && self.inner.supports(call)
    }
}

pub(crate) static BACKENDS: [Entry; 1] = [Entry {
    name: "mine",
    count: || Ok(2),
    open: |_| Ok(Arc::new(Mine { inner: Cpu::new()?, lacks: std::env::var("MINE_LACKS").unwrap_or_default() })),
    about: |_| About::default(),
    memory: Vec::new,
}];

fn main() -> ExitCode {
    cli::main_with(&BACKENDS)
}
