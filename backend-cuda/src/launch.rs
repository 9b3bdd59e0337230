//! Tools of a family for launching: addresses of operands, the size of the grid, the queue for a launch.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::Result;
use memcore::backend::{Operand, Tf32};

use crate::call::start;
pub(crate) use crate::call::{Argument, Function, Grid, Launch, Scratch, THREADS};
use crate::driver::Properties;
use crate::fills::Fills;
use crate::graphs::{Graphs, Libraries, Work};
use crate::kernel::{Kernel, Tag};
use crate::memory::Table;
use crate::modules::Modules;
use crate::queue::Queue;

/// Forms of an elementwise kernel: any strides, or 16 bytes at a time.
pub(crate) const ONE: usize = 0;
/// See [`ONE`].
pub(crate) const WIDE: usize = 1;

/// Everything that a family needs to launch a kernel.
pub(crate) struct Context<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) properties: &'a Properties,
    pub(crate) modules: &'a Modules,
    pub(crate) table: MutexGuard<'a, Table>,
    /// The libraries that are used.
    pub(crate) libraries: Libraries<'a>,
    /// Fills that wait for the next launch.
    pub(crate) fills: &'a Mutex<Fills>,
    /// Collected launches, if they are collected.
    pub(crate) graphs: &'a Mutex<Option<Graphs>>,
    /// Float32 products that may be computed in TF32.
    pub(crate) tf32: Option<Tf32>,
    /// Memory for partial results between the launches of one call.
    pub(crate) scratch: Scratch,
}

impl Context<'_> {
    /// The address of an operand.
    pub(crate) fn at(&self, operand: &Operand) -> Result<u64> {
        self.table.operand(operand)
    }

    /// The address of an operand, 0 if it is absent.
    pub(crate) fn at_optional(&self, operand: &Option<Operand>) -> Result<u64> {
        operand.as_ref().map_or(Ok(0), |operand| self.at(operand))
    }

    /// Fills that wait.
    pub(crate) fn fills(&self) -> MutexGuard<'_, Fills> {
        self.fills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grid for `items` independent pieces of work, one per thread. It has at most as many blocks as keep the device
    /// busy; kernels loop until all items are done.
    pub(crate) fn grid(&self, items: u64) -> Grid {
        const BLOCKS_PER_PROCESSOR: u64 = 32;
        let most = u64::from(self.properties.processors) * BLOCKS_PER_PROCESSOR;
        Grid::over_blocks(items.div_ceil(u64::from(THREADS)).clamp(1, most))
    }

    /// Queues a kernel. `args` is the struct that the kernel takes, by value.
    pub(crate) fn launch<A: Argument>(
        &self,
        kernel: Kernel<A>,
        tag: Tag,
        form: usize,
        grid: Grid,
        args: &A,
    ) -> Result<()> {
        let function = Function(self.modules.function(self.queue, kernel, tag, form)?);
        function.allow(kernel.spec.name, grid.shared_bytes)?;
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *graphs {
            None => start(self.queue, kernel.spec.name, function, grid, std::ptr::from_ref(args).cast_mut().cast()),
            Some(graphs) => {
                let launch = Launch { kernel: kernel.spec.name, function, grid, args: Box::new(*args) };
                graphs.collect(Work::Kernel(launch), self.queue, self.libraries)
            }
        }
    }

    /// Launches the collected work, so that other work can follow it.
    pub(crate) fn hand_over(&self) -> Result<()> {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.as_mut().map_or(Ok(()), |graphs| graphs.flush(self.queue, self.libraries))
    }

    /// Runs `work`, whose launches go to the driver at once, behind those that were collected.
    ///
    /// # Errors
    /// Those of `work`, and of work that was collected before.
    pub(crate) fn at_once<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.hand_over()?;
        let lock = || self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else launches meanwhile: this context holds the table's lock.
        let collecting = lock().take();
        let done = work();
        *lock() = collecting;
        done
    }

    /// Adds the work to the collected launches. Returns false if launches are not collected.
    ///
    /// # Errors
    /// A failure of work that was collected before.
    pub(crate) fn collected(&self, work: Work) -> Result<bool> {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.as_mut().map_or(Ok(false), |graphs| graphs.collect(work, self.queue, self.libraries).map(|()| true))
    }
}
