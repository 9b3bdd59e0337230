//! One launch: addresses of operands, the function, the size of the grid.

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUfunction;

use memcore::backend::Operand;
use memcore::{Error, Result};

use crate::blaslt::BlasLt;
use crate::driver::{NAME, Properties, Queue, driven};
use crate::graphs::{Graphs, Work};
use crate::kernels::{Kernel, Modules, Tag};
use crate::memory::Table;

/// Threads of a block, wherever a kernel does not say otherwise.
pub(crate) const THREADS: u32 = 256;

/// Forms of an elementwise kernel: any strides, or 16 bytes at a time.
pub(crate) const ONE: usize = 0;
/// See [`ONE`].
pub(crate) const WIDE: usize = 1;

/// What a kernel gets from the host besides its own argument.
pub(crate) struct Context<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) properties: &'a Properties,
    pub(crate) modules: &'a Modules,
    pub(crate) table: MutexGuard<'a, Table>,
    /// The library of matrix products, where it is there.
    pub(crate) blas: Option<&'a BlasLt>,
    /// Where launches are collected, if they are.
    pub(crate) graphs: &'a Mutex<Option<Graphs>>,
    /// Room for partial results between the launches of one call.
    pub(crate) scratch: Scratch,
}

/// The fixed room for partial results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scratch {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Blocks of a launch, in three dimensions, and threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grid {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: u32,
    /// Bytes of shared memory that the launch gives; at most 48 KiB, which every device has.
    pub(crate) shared_bytes: u32,
}

impl Grid {
    /// `blocks` blocks of [`THREADS`].
    pub(crate) fn of(blocks: u64) -> Self {
        Self { blocks: [blocks.min(i32::MAX as u64) as u32, 1, 1], threads: THREADS, shared_bytes: 0 }
    }
}

impl Context<'_> {
    /// The address of an operand.
    pub(crate) fn at(&self, operand: &Operand) -> Result<u64> {
        self.table.operand(operand)
    }

    /// The address of an operand, 0 where it is absent.
    pub(crate) fn at_optional(&self, operand: &Option<Operand>) -> Result<u64> {
        operand.as_ref().map_or(Ok(0), |operand| self.at(operand))
    }

    /// A grid for `items` independent pieces of work, one per thread: at most what keeps the device busy, since
    /// kernels go on until all are done.
    pub(crate) fn grid(&self, items: u64) -> Grid {
        const BLOCKS_PER_PROCESSOR: u64 = 32;
        let most = u64::from(self.properties.processors) * BLOCKS_PER_PROCESSOR;
        Grid::of(items.div_ceil(u64::from(THREADS)).clamp(1, most))
    }

    /// Queues a kernel. `args` is the struct that the kernel takes, by value.
    pub(crate) fn launch<A: Argument>(
        &self,
        kernel: Kernel,
        tag: Tag,
        form: usize,
        grid: Grid,
        args: &A,
    ) -> Result<()> {
        let function = Function(self.modules.function(self.queue, kernel, tag, form)?);
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *graphs {
            None => start(self.queue, kernel, function, grid, std::ptr::from_ref(args).cast_mut().cast()),
            Some(graphs) => {
                let launch = Launch { kernel, function, grid, args: Box::new(*args) };
                graphs.collect(Work::Kernel(launch), self.queue, self.blas)
            }
        }
    }

    /// Whether this will be launched with what is collected; false where nothing is.
    ///
    /// # Errors
    /// What failed of what was collected before.
    pub(crate) fn collected(&self, work: Work) -> Result<bool> {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.as_mut().map_or(Ok(false), |graphs| graphs.collect(work, self.queue, self.blas).map(|()| true))
    }
}

/// The struct that a kernel takes: what [`Launch`] keeps until it is launched, and compares.
pub(crate) trait Argument: Copy + PartialEq + Send + Sync + 'static {}

impl<A: Copy + PartialEq + Send + Sync + 'static> Argument for A {}

/// An [`Argument`] of any kernel.
trait Kept: Any + Send + Sync {
    fn equals(&self, other: &dyn Kept) -> bool;
}

impl<A: Argument> Kept for A {
    fn equals(&self, other: &dyn Kept) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<A>() == Some(self)
    }
}

/// A loaded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Function(CUfunction);

// SAFETY: the driver lets any thread use it that has the context.
unsafe impl Send for Function {}

impl Function {
    pub(crate) fn handle(self) -> CUfunction {
        self.0
    }
}

/// A launch for later.
pub(crate) struct Launch {
    kernel: Kernel,
    pub(crate) function: Function,
    pub(crate) grid: Grid,
    args: Box<dyn Kept>,
}

impl Launch {
    /// Gives it to the driver.
    pub(crate) fn start(&self, queue: &Queue) -> Result<()> {
        start(queue, self.kernel, self.function, self.grid, self.arguments())
    }

    /// Where the argument lies; the driver only reads it.
    pub(crate) fn arguments(&self) -> *mut c_void {
        std::ptr::from_ref(&*self.args).cast_mut().cast()
    }

    /// Whether both take the same argument.
    pub(crate) fn has_arguments_of(&self, other: &Launch) -> bool {
        self.args.equals(&*other.args)
    }
}

/// Gives a launch to the driver. The one argument has the size that the function takes, which was compared when it was
/// loaded; the driver copies it before it returns. Addresses in it were made by [`Context::at`], of operands whose bounds
/// core has checked.
fn start(queue: &Queue, kernel: Kernel, function: Function, grid: Grid, argument: *mut c_void) -> Result<()> {
    let [x, y, z] = grid.blocks;
    let mut parameters = [argument];
    driven!(cuLaunchKernel(
        function.0,
        x,
        y,
        z,
        grid.threads,
        1,
        1,
        grid.shared_bytes,
        queue.stream(),
        parameters.as_mut_ptr(),
        std::ptr::null_mut(),
    ))
    .map_err(|error| Error::backend(NAME, format!("kernel {kernel:?}: {error}")))
}
