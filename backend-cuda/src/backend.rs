//! [`Cuda`]: implements the backend's traits, and dispatches kernels to their families.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::backend::{
    Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Overhead, Region, SegmentId, Tf32, VirtualMemory,
};
use memcore::error::{Error, Result};
use memcore::{DType, Profile};

use crate::blaslt::BlasLt;
use crate::compile::{Compiler, Nvrtc};
use crate::cudnn::Cudnn;
use crate::driver::{Driver, NAME, Properties};
use crate::figures::{self, MemorySteps, NvmlFigures};
use crate::fills::Fills;
use crate::gemm::has_tensor_cores;
use crate::graphs::{Graphs, Libraries};
use crate::launch::{Context, Scratch};
use crate::memory::{ALIGNMENT, Table};
use crate::modules::Modules;
use crate::queue::Queue;
use crate::{
    attention, conv, elementwise, index, kernels, loss, matmul, norm, optim, pool, quant, random, reduce, softmax,
};

/// Bytes for partial results between the launches of one call; allocated once, when the device is opened.
const SCRATCH_BYTES: u64 = 16 << 20;

/// The oldest compute capability that has the instructions of the kernels.
const OLDEST: (u32, u32) = (7, 5);

/// The element types that the kernels support.
const DTYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool];

/// An NVIDIA GPU as a device; see the crate's documentation.
pub struct Cuda {
    limits: Limits,
    properties: Properties,
    modules: Modules,
    table: Mutex<Table>,
    scratch: Scratch,
    /// Memory that was taken when the device was opened.
    steps: MemorySteps,
    /// cuBLASLt, or the reason why it is not used.
    blas: Result<BlasLt, String>,
    /// cuDNN, or the reason why it is not used.
    dnn: Result<Cudnn, String>,
    /// Fills that wait for the next launch.
    fills: Mutex<Fills>,
    /// Collected launches; `None` unless graphs are used.
    graphs: Mutex<Option<Graphs>>,
    /// Float32 products that may be computed in TF32.
    tf32: Mutex<Option<Tf32>>,
    /// Declared last: the fields above are freed while the context lives.
    queue: Queue,
}

impl Cuda {
    /// Number of devices that the driver has.
    ///
    /// # Errors
    /// [`Error::Backend`] with the missing part and how to get it.
    pub fn count() -> Result<usize> {
        Ok(Driver::load()?.count()?)
    }

    /// Opens device `ordinal`, below [`Cuda::count`]. Kernels are compiled at first use, or read from the cache on
    /// disk.
    ///
    /// # Errors
    /// [`Error::Backend`] if driver, compiler or device are missing or too old, with how to get them.
    pub fn open(ordinal: usize) -> Result<Self> {
        let driver = Driver::load()?;
        Self::build(driver, ordinal, Box::new(Nvrtc::load(driver.cuda_major())?))
    }

    /// Like [`Cuda::open`] with another compiler: for the tests, which run the kernels on the host.
    #[doc(hidden)]
    pub fn open_for_test(ordinal: usize, compiler: Box<dyn Compiler>) -> Result<Self> {
        Self::build(Driver::load()?, ordinal, compiler)
    }

    fn build(driver: Driver, ordinal: usize, compiler: Box<dyn Compiler>) -> Result<Self> {
        let properties = Properties::read(driver, ordinal)?;
        if properties.capability < OLDEST {
            let ((major, minor), (least, minus)) = (properties.capability, OLDEST);
            let text = format!(
                "{} has compute capability {major}.{minor}; the kernels need {least}.{minus} (Turing, 2018) or later",
                properties.name
            );
            return Err(Error::backend(NAME, text));
        }
        let (queue, mut steps) = figures::opened(&properties)?;
        let taken = figures::measured(&queue, || queue.allocate(SCRATCH_BYTES));
        let (address, scratch_bytes) = taken.map_err(|error| {
            let text = format!("{} has no room for {SCRATCH_BYTES} bytes of scratch: {error}", properties.name);
            Error::backend(NAME, text)
        })?;
        steps.scratch_bytes = scratch_bytes;
        let limits = Limits {
            alignment: ALIGNMENT,
            max_segment_bytes: properties.total_bytes,
            max_binding_bytes: u64::MAX,
            dtypes: DTYPES.to_vec(),
        };
        Ok(Self {
            limits,
            blas: BlasLt::load(&queue, &properties.name, driver.cuda_major()),
            dnn: Cudnn::find(driver.cuda_major()),
            modules: Modules::new(driver, properties.capability, compiler, kernels::TABLES, kernels::headers()),
            properties,
            table: Mutex::default(),
            scratch: Scratch { address, bytes: SCRATCH_BYTES },
            fills: Mutex::default(),
            graphs: Mutex::default(),
            tf32: Mutex::default(),
            steps,
            queue,
        })
    }

    /// Compiles and loads every kernel now, instead of at first use.
    ///
    /// # Errors
    /// [`Error::Backend`] with the compiler's log, or if the device has no room for them.
    pub fn load_kernels(&self) -> Result<()> {
        self.modules.load_all(&self.queue)
    }

    /// Memory that the backend has made the driver take outside of segments so far.
    pub fn memory_steps(&self) -> MemorySteps {
        let libraries_bytes = self.blas().map_or(0, BlasLt::held_bytes);
        let cudnn_bytes = self.dnn.as_ref().map_or(0, Cudnn::held_bytes);
        let graphs_bytes = self.graphs().as_ref().map_or(0, Graphs::held_bytes);
        MemorySteps { modules: self.modules.held(), libraries_bytes, cudnn_bytes, graphs_bytes, ..self.steps.clone() }
    }

    /// The figures of nvidia-smi for this device and this process.
    ///
    /// # Errors
    /// [`Error::Backend`] if NVML is missing or does not know the device.
    pub fn nvml_figures(&self) -> Result<NvmlFigures> {
        figures::nvml(self.properties.uuid)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the graphs. If the table is locked too, it must be locked first.
    fn graphs(&self) -> MutexGuard<'_, Option<Graphs>> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tf32(&self) -> MutexGuard<'_, Option<Tf32>> {
        self.tf32.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blas(&self) -> Option<&BlasLt> {
        self.blas.as_ref().ok()
    }

    fn libraries(&self) -> Libraries<'_> {
        Libraries { blas: self.blas(), dnn: self.dnn.as_ref().ok() }
    }

    /// What a family needs, with the locked table.
    fn context<'a>(&'a self, table: MutexGuard<'a, Table>) -> Context<'a> {
        Context {
            queue: &self.queue,
            properties: &self.properties,
            modules: &self.modules,
            table,
            libraries: self.libraries(),
            fills: &self.fills,
            graphs: &self.graphs,
            tf32: *self.tf32(),
            scratch: self.scratch,
        }
    }

    /// Launches what waits or was collected: the host is about to wait, or to do something that must come after it.
    fn flush<'a>(&'a self, table: MutexGuard<'a, Table>) -> Result<MutexGuard<'a, Table>> {
        let ctx = self.context(table);
        elementwise::launch_fills(&ctx)?;
        ctx.hand_over()?;
        Ok(ctx.table)
    }

    /// Like [`Cuda::flush`], for callers that cannot return an error: the next call returns it.
    fn flush_quietly<'a>(&'a self, table: MutexGuard<'a, Table>) -> MutexGuard<'a, Table> {
        let ctx = self.context(table);
        elementwise::launch_fills_quietly(&ctx);
        if let Some(graphs) = &mut *self.graphs() {
            graphs.flush_quietly(&self.queue, self.libraries());
        }
        ctx.table
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // On failure the device is lost, and its memory with it.
        let _ = self.queue.synchronize();
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        table.clear(&self.queue);
        *self.graphs.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.blas = Err(String::new());
        self.dnn = Err(String::new());
        let _ = self.queue.free(self.scratch.address);
        self.modules.unload();
    }
}

impl DeviceMemory for Cuda {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        self.table().alloc(&self.queue, bytes, self.limits.max_segment_bytes)
    }

    fn free_segment(&self, id: SegmentId) {
        let mut table = self.flush_quietly(self.table());
        table.free(&self.queue, id);
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let (free_bytes, total_bytes) = self.queue.memory_info().ok()?;
        Some(MemoryInfo { free_bytes, total_bytes })
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        if self.properties.virtual_memory { Some(self) } else { None }
    }
}

impl VirtualMemory for Cuda {
    fn reserve(&self, bytes: u64, page_bytes: u64) -> Result<SegmentId> {
        self.table().reserve(&self.queue, self.properties.device, bytes, page_bytes)
    }

    fn map(&self, id: SegmentId, offset: u64, bytes: u64) -> Result<()> {
        self.table().map(&self.queue, self.properties.device, id, offset, bytes)
    }

    fn unmap(&self, id: SegmentId, offset: u64, bytes: u64) {
        let mut table = self.flush_quietly(self.table());
        table.unmap(&self.queue, id, offset, bytes);
    }

    fn release(&self, id: SegmentId) {
        let mut table = self.flush_quietly(self.table());
        table.free(&self.queue, id);
    }
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        NAME
    }

    fn how_it_copies(&self) -> Option<&'static str> {
        Some(
            "CUDA copies from ordinary host memory here: the driver sends it through page-locked memory of its own, piece by piece, and returns \
             when the source may be reused",
        )
    }

    fn device_name(&self) -> String {
        let (major, minor) = self.properties.capability;
        let blas = match &self.blas {
            Ok(blas) => format!("cuBLASLt {}.{}", blas.version().0, blas.version().1),
            Err(why) => format!("own matrix products (cuBLASLt: {why})"),
        };
        let dnn = match &self.dnn {
            Ok(dnn) => format!("cuDNN {}.{}", dnn.version().0, dnn.version().1),
            Err(why) => format!("own convolutions (cuDNN: {why})"),
        };
        format!("{}, compute capability {major}.{minor}, {blas}, {dnn}", self.properties.name)
    }

    fn first_use(&self) -> Option<String> {
        let missing = self.modules.not_compiled();
        let (major, minor) = self.properties.capability;
        (missing > 0).then(|| {
            format!(
                "{missing} files of kernels are not compiled for compute capability {major}.{minor} yet: each takes some \
                 seconds when it is first used, and is kept"
            )
        })
    }

    fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        let table = self.table();
        dst.check_host_len(src.len())?;
        if src.is_empty() {
            return Ok(());
        }
        let to = table.address(dst)?;
        let _table = self.flush(table)?;
        // SAFETY: `address` has checked that the region lies in a live segment, which the table keeps during the call.
        Ok(unsafe { self.queue.upload(src, to) }?)
    }

    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        let table = self.table();
        src.check_host_len(dst.len())?;
        if dst.is_empty() {
            return Ok(());
        }
        let from = table.address(src)?;
        let _table = self.flush(table)?;
        // SAFETY: as in `upload`.
        Ok(unsafe { self.queue.download(from, dst) }?)
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        let table = self.table();
        self.queue.bind()?;
        let ctx = self.context(table);
        if let KernelCall::Fill(k) = call
            && elementwise::postpone_fill(&ctx, k)?
        {
            return Ok(());
        }
        elementwise::launch_fills(&ctx)?;
        dispatch(&ctx, call)
    }

    fn synchronize(&self) -> Result<()> {
        // No other thread may capture the queue while this one waits for it.
        let _table = self.flush(self.table())?;
        Ok(self.queue.synchronize()?)
    }

    fn supports(&self, call: &KernelCall) -> bool {
        let mut known = true;
        call.each_operand(&mut |_, _, operand| known &= DTYPES.contains(&operand.dtype));
        known && supports(call)
    }

    fn workspace_bytes(&self, call: &KernelCall) -> u64 {
        let KernelCall::AttentionGrad(k) = call else { return 0 };
        let table = self.table();
        if self.queue.bind().is_err() {
            return 0;
        }
        attention::workspace_bytes(&self.context(table), k)
    }

    fn scratch_bytes(&self) -> u64 {
        SCRATCH_BYTES
    }

    fn gemm_workspace_bytes(&self) -> u64 {
        let (major, minor) = self.properties.capability;
        self.blas().map_or(0, |_| Profile::torch_gemm_workspace_bytes(10 * major + minor))
    }

    fn use_graphs(&self) -> Result<()> {
        let mut graphs = self.graphs();
        if graphs.is_none() {
            *graphs = Some(Graphs::new()?);
        }
        Ok(())
    }

    fn allow_tf32(&self, which: Tf32) -> Result<()> {
        let (major, minor) = self.properties.capability;
        if !has_tensor_cores((major, minor), DType::F32) {
            let text = format!("compute capability {major}.{minor} has no TF32: 8.0 (Ampere, 2020) and later have it");
            return Err(Error::backend(NAME, text));
        }
        *self.tf32() = Some(which);
        Ok(())
    }

    fn overheads(&self) -> Vec<Overhead> {
        self.memory_steps().overheads()
    }
}

/// True if a family has the kernel for these types and shapes.
fn supports(call: &KernelCall) -> bool {
    match call {
        KernelCall::Unary(k) => elementwise::supports_unary(k),
        KernelCall::Binary(k) => elementwise::supports_binary(k),
        KernelCall::Triangle(k) => elementwise::supports_triangle(k),
        KernelCall::Reduce(k) => reduce::supports(k),
        KernelCall::SoftmaxGrad(k) => softmax::supports_grad(k),
        KernelCall::LayerNormGrad(k) => norm::supports_row_grad(&k.x),
        KernelCall::RmsNormGrad(k) => norm::supports_row_grad(&k.x),
        KernelCall::BatchNorm(k) => norm::supports_channels(&k.x),
        KernelCall::BatchNormGrad(k) => norm::supports_channels(&k.x),
        KernelCall::Pool2d(k) => pool::supports(&k.x, &k.out),
        KernelCall::Pool2dGrad(k) => pool::supports(&k.out, &k.grad),
        KernelCall::ScatterAdd(k) => index::supports_scatter(k),
        KernelCall::Matmul(k) => matmul::supports(k),
        KernelCall::MatmulInt8(k) => matmul::supports_int8(k),
        KernelCall::Conv2d(k) => conv::supports(k),
        KernelCall::Conv2dInputGrad(k) => conv::supports_input_grad(k),
        KernelCall::Conv2dWeightGrad(k) => conv::supports_weight_grad(k),
        KernelCall::Attention(k) => attention::supports(&k.q, &k.k, &k.v),
        KernelCall::AttentionGrad(k) => attention::supports(&k.q, &k.k, &k.v),
        _ => true,
    }
}

fn dispatch(ctx: &Context<'_>, call: &KernelCall) -> Result<()> {
    memcore::by_family!(call, ctx)
}
