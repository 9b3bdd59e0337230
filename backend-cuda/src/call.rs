//! One launch of a kernel, now or later: the function, its argument, the size of the grid.

use std::any::Any;
use std::ffi::c_void;

use cudarc::driver::sys::{self, CUfunction};
use memcore::Result;

use crate::driver::driven;
use crate::queue::Queue;

/// Threads of a block, unless a kernel sets another number.
pub(crate) const THREADS: u32 = 256;

/// The fixed memory for partial results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scratch {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Number of blocks of a launch in three dimensions, and of threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grid {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory. Every device has 48 KiB; of more than that a function has to be told, see [`Function::allow`].
    pub(crate) shared_bytes: u32,
}

impl Grid {
    /// `blocks` blocks of [`THREADS`].
    pub(crate) fn over_blocks(blocks: u64) -> Self {
        Self { blocks: [blocks.min(i32::MAX as u64) as u32, 1, 1], threads: THREADS, shared_bytes: 0 }
    }
}

/// The struct that a kernel takes. [`Launch`] stores it until the launch, and compares it.
pub(crate) trait Argument: Copy + PartialEq + Send + Sync + 'static {}

impl<A: Copy + PartialEq + Send + Sync + 'static> Argument for A {}

/// An [`Argument`] of any kernel.
pub(crate) trait Kept: Any + Send + Sync {
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
pub(crate) struct Function(pub(crate) CUfunction);

// SAFETY: the driver lets any thread use it that has the context.
unsafe impl Send for Function {}

impl Function {
    pub(crate) fn handle(self) -> CUfunction {
        self.0
    }

    /// Tells the function how much dynamic shared memory its launches give it, if that is more than any function may have.
    pub(crate) fn allow(self, kernel: &str, shared_bytes: u32) -> Result<()> {
        const WITHOUT_BEING_TOLD: u32 = 48 << 10;
        const MOST: sys::CUfunction_attribute =
            sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        if shared_bytes <= WITHOUT_BEING_TOLD {
            return Ok(());
        }
        driven!(cuFuncSetAttribute(self.0, MOST, shared_bytes as i32))
            .map_err(|error| error.while_at(&format!("kernel {kernel}")))
    }
}

/// A launch that is executed later.
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    pub(crate) function: Function,
    pub(crate) grid: Grid,
    pub(crate) args: Box<dyn Kept>,
}

impl Launch {
    /// Passes the launch to the driver.
    pub(crate) fn start(&self, queue: &Queue) -> Result<()> {
        start(queue, self.kernel, self.function, self.grid, self.arguments())
    }

    /// Pointer to the argument; the driver only reads it.
    pub(crate) fn arguments(&self) -> *mut c_void {
        std::ptr::from_ref(&*self.args).cast_mut().cast()
    }

    /// True if both take equal arguments.
    pub(crate) fn has_arguments_of(&self, other: &Launch) -> bool {
        self.args.equals(&*other.args)
    }
}

/// Gives a launch to the driver. The one argument has the size that the function takes, which was compared when it was
/// loaded; the driver copies it before it returns. Addresses in it were made by [`Context::at`](crate::launch::Context::at), of operands whose bounds
/// core has checked.
pub(crate) fn start(queue: &Queue, kernel: &str, function: Function, grid: Grid, argument: *mut c_void) -> Result<()> {
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
    .map_err(|error| error.while_at(&format!("kernel {kernel}")))
}
