//! Contents of an out-of-memory message.

use super::size::Size;
use super::verdict::Verdict;

/// Kind of message, by its wording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// 1.0 to 2.0: `(GPU 0; 10.76 GiB total capacity; …)`.
    Parentheses,
    /// From 2.1 on: `GPU 0 has a total capacity of …`.
    Sentences,
    /// From 2.15 on: refused because of the limit of the process, without asking the driver.
    Preemptive,
    /// A request of more than an exbibyte.
    Huge,
    /// Only the request: the rest of the line is missing.
    Request,
    /// From the backend `cudaMallocAsync`: `Allocation on device 0 would exceed allowed memory`.
    Async,
    /// From Apple's GPUs: `MPS backend out of memory`.
    Mps,
    /// Up to 0.4: `cuda runtime error (2) : out of memory`.
    Thc,
    /// `CUDA error: out of memory`: from the driver itself.
    Driver,
    /// From a library: cuBLAS, cuDNN, NCCL and others.
    Library,
    /// `NVML_SUCCESS == r INTERNAL ASSERT FAILED`: PyTorch's own message, whose text could not be written.
    Assert,
    /// `torch.cuda.memory_summary()`: a table, not a message.
    Summary,
    /// `DefaultCPUAllocator: can't allocate memory`.
    HostAllocator,
    /// NumPy's `Unable to allocate 14.9 GiB for an array`.
    HostArray,
    /// The operating system's error 12, `Cannot allocate memory`.
    System,
    /// Python's `MemoryError`.
    Python,
    /// `DataLoader worker (pid 1) is killed by signal: …`.
    Loader,
    /// Of NCCL, on the host's side: `NCCL WARN Error while creating shared memory segment …`.
    Nccl,
    /// From a launcher, a scheduler or the kernel: a process was killed.
    Launcher,
    /// From this program.
    Own,
}

impl Wording {
    /// Returns a name to show to people.
    pub fn name(self) -> &'static str {
        match self {
            Wording::Parentheses => "PyTorch 1.0 to 2.0",
            Wording::Sentences => "PyTorch 2.1 and later",
            Wording::Preemptive => "PyTorch 2.15 and later, refused ahead of the driver",
            Wording::Huge => "a request of more than 1 EiB",
            Wording::Request => "PyTorch, cut off after the request",
            Wording::Async => "PyTorch's backend cudaMallocAsync",
            Wording::Mps => "PyTorch on Apple's GPUs (MPS)",
            Wording::Thc => "PyTorch up to 0.4",
            Wording::Driver => "the driver's own error",
            Wording::Library => "a library's own error",
            Wording::Assert => "PyTorch, which could not ask NVML for the figures",
            Wording::Summary => "a table of torch.cuda.memory_summary()",
            Wording::HostAllocator => "PyTorch's allocator for the host's memory",
            Wording::HostArray => "an array of NumPy",
            Wording::System => "the operating system's own error",
            Wording::Python => "Python's MemoryError",
            Wording::Loader => "a worker of PyTorch's DataLoader",
            Wording::Nccl => "NCCL, on the host",
            Wording::Launcher => "a process that was killed",
            Wording::Own => "vramlab's own message",
        }
    }
}

/// Backend whose devices the message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Backend {
    #[default]
    Cuda,
    Hip,
    Xpu,
    Mps,
    /// Ascend's devices.
    Npu,
    /// Those of Moore Threads.
    Musa,
    /// Those of Cambricon.
    Mlu,
    /// Gaudi.
    Hpu,
}

impl Backend {
    /// The program that shows who holds memory of such a device.
    pub(super) fn tool(self) -> &'static str {
        match self {
            Backend::Cuda | Backend::Mps => "nvidia-smi",
            Backend::Hip => "rocm-smi",
            Backend::Xpu => "xpu-smi",
            Backend::Npu => "npu-smi info",
            Backend::Musa => "mthreads-gmi",
            Backend::Mlu => "cnmon",
            Backend::Hpu => "hl-smi",
        }
    }

    /// For a backend in a package of its own, whose releases the wording does not tell: where the message is from.
    pub(super) fn package(self) -> Option<&'static str> {
        match self {
            Backend::Npu => Some("torch_npu, for Ascend NPUs"),
            Backend::Musa => Some("torch_musa, for GPUs of Moore Threads"),
            Backend::Mlu => Some("torch_mlu, for Cambricon's MLUs"),
            Backend::Hpu => Some("Gaudi's backend (HPU)"),
            Backend::Cuda | Backend::Hip | Backend::Xpu | Backend::Mps => None,
        }
    }

    /// The variable with the settings of the allocator of such a package.
    pub(super) fn own_variable(self) -> Option<&'static str> {
        match self {
            Backend::Npu => Some("PYTORCH_NPU_ALLOC_CONF"),
            Backend::Musa => Some("PYTORCH_MUSA_ALLOC_CONF"),
            Backend::Mlu => Some("PYTORCH_MLU_ALLOC_CONF"),
            _ => None,
        }
    }
}

/// Component that failed outside of PyTorch's device allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A library could not create its handle or take its buffers.
    Library(&'static str),
    /// A library, with a status that other causes have as well.
    Uninitialized(&'static str),
    /// The state of PyTorch's random generator.
    Generator,
    /// The driver, whatever called it.
    Driver,
    /// A worker, killed by the system.
    Killed,
    /// A worker that Ray ended because the host's memory was nearly full.
    Ray,
    /// Another process, for which the operating system had no memory.
    Fork,
    /// A file, for whose mapping the operating system had no memory.
    Mapping,
    /// A worker that found no room in shared memory.
    SharedMemory,
    /// NCCL, whose segments lie in shared memory.
    NcclShared,
    /// cuDNN found no way to compute a convolution.
    NoPlan,
    /// The thread of a DataLoader that copies batches to page-locked memory of the host.
    PageLocking,
}

/// Contents of an out-of-memory message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) wording: Wording,
    pub(super) backend: Backend,
    pub(super) device: Option<u32>,
    pub(super) requested: Option<Size>,
    pub(super) total: Option<Size>,
    pub(super) free: Option<Size>,
    pub(super) allowed: Option<Size>,
    pub(super) allocated: Option<Size>,
    pub(super) private: Option<Size>,
    pub(super) unallocated: Option<Size>,
    pub(super) reserved: Option<Size>,
    /// Memory that Metal holds for this process outside of PyTorch's allocator.
    pub(super) beside: Option<Size>,
    /// Memory of this process, as NVML reports it.
    pub(super) process: Option<Size>,
    /// Processes that the message does not recognize as this one: pid and memory.
    pub(super) processes: Vec<(u64, Size)>,
    /// The variable that the message names: `PYTORCH_CUDA_ALLOC_CONF` or its like.
    pub(super) variable: Option<&'static str>,
    /// True if the hint says that expandable segments are on.
    pub(super) expandable: bool,
    pub(super) failure: Option<Failure>,
    /// Verdict that the message states itself.
    pub(super) stated: Option<Verdict>,
    /// A figure that the message prints and that cannot be: its name and the figure.
    pub(super) impossible: Option<(&'static str, Size)>,
    /// Of a table: most that was allocated and reserved, requests that failed, and refusals of the driver.
    pub(super) peaks: (Option<Size>, Option<Size>),
    pub(super) failed: Option<u64>,
    pub(super) retries: Option<u64>,
    /// The script that a traceback in the text begins with.
    pub(super) script: Option<String>,
    /// The innermost line of that traceback that is the user's.
    pub(super) line: Option<String>,
}

impl Message {
    /// Number of sizes that the message says.
    pub(super) fn figures(&self) -> usize {
        let sizes =
            [self.requested, self.total, self.free, self.allowed, self.allocated, self.private, self.unallocated];
        let further = [self.reserved, self.beside, self.process, self.peaks.0, self.peaks.1];
        sizes.iter().chain(&further).flatten().count() + self.processes.len()
    }

    /// Returns a message without figures.
    pub(crate) fn new(wording: Wording, backend: Backend) -> Self {
        Self {
            wording,
            backend,
            device: None,
            requested: None,
            total: None,
            free: None,
            allowed: None,
            allocated: None,
            private: None,
            unallocated: None,
            reserved: None,
            beside: None,
            process: None,
            processes: Vec::new(),
            variable: None,
            expandable: false,
            failure: None,
            stated: None,
            impossible: None,
            peaks: (None, None),
            failed: None,
            retries: None,
            script: None,
            line: None,
        }
    }

    /// Says where the message is from.
    pub(super) fn origin(&self) -> &'static str {
        match (self.backend, self.wording) {
            // The extension kept the old wording for several releases.
            (Backend::Xpu, Wording::Parentheses) => "Intel's extension for PyTorch",
            (backend, wording) => backend.package().unwrap_or(wording.name()),
        }
    }

    /// Takes out a figure that contradicts the others beyond rounding: in a container NVML sees no process and says 0 bytes, and lines of a log that
    /// are mixed with others hold anything.
    pub(super) fn without_impossible(mut self) -> Self {
        let reserved = self.all_reserved().or(self.allocated);
        if let (Some(process), Some(reserved)) = (self.process, reserved)
            && reserved.surely_exceeds(process)
        {
            self.process = None;
            self.impossible = Some(("this process", process));
        }
        if let (Some(free), Some(total)) = (self.free, self.total)
            && free.surely_exceeds(total)
        {
            self.free = None;
            self.impossible = Some(("free", free));
        }
        if let (Some(allocated), Some(reserved)) = (self.allocated, self.reserved)
            && allocated.surely_exceeds(reserved)
        {
            self.reserved = None;
            self.impossible = Some(("reserved", reserved));
        }
        self
    }

    /// Bytes of all segments: as printed, or the sum of their parts.
    pub(super) fn all_reserved(&self) -> Option<Size> {
        self.reserved.or_else(|| Some(self.allocated?.plus(self.unallocated?)))
    }

    /// Bytes of free blocks: as printed, or reserved minus allocated.
    pub(super) fn all_unallocated(&self) -> Option<Size> {
        self.unallocated.or_else(|| Some(self.reserved?.minus(self.allocated?)))
    }

    /// Upper bound of the driver's free memory. Older releases for Intel's devices do not print it: it is at most the device less PyTorch's segments.
    pub(super) fn free_at_most(&self) -> Option<Size> {
        match (self.free, self.backend) {
            (None, Backend::Xpu) => Some(self.total?.minus(self.all_reserved().unwrap_or(Size::from_bytes(0)))),
            (free, _) => free,
        }
    }

    /// Most that the process could ever have: the device, or its share of the device.
    pub(super) fn limit(&self) -> Option<Size> {
        [self.total, self.allowed].into_iter().flatten().min_by_key(|size| size.bytes)
    }

    /// Most that PyTorch could ever have there: the device, or its share of it, less what this process holds besides (its CUDA context).
    pub(super) fn for_pytorch(&self) -> Option<Size> {
        let context = self.process.zip(self.all_reserved()).map(|(process, reserved)| process.minus(reserved));
        let total = self.total.map(|total| context.map_or(total, |context| total.minus(context)));
        [total, self.allowed].into_iter().flatten().min_by_key(|size| size.bytes)
    }

    /// Most that the process could still have had from the driver.
    pub(super) fn obtainable(&self) -> Option<Size> {
        let free = self.free_at_most()?;
        let share = self.allowed.map(|allowed| allowed.minus(self.all_reserved().unwrap_or(Size::from_bytes(0))));
        Some(share.filter(|share| share.bytes < free.bytes).unwrap_or(free))
    }

    /// True if the process's limit stands in the way, not the device's size.
    pub(super) fn is_limited(&self) -> bool {
        let held_back = || Some(self.obtainable()?.bytes < self.free_at_most()?.bytes);
        self.wording == Wording::Preemptive || self.allowed.is_some() && held_back().unwrap_or(false)
    }
}
