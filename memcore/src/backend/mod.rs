//! The whole interface that a device must implement.
//!
//! A backend is two small traits. [`DeviceMemory`] hands out segments; [`Backend`] moves bytes and
//! runs kernels in them. Everything else — allocation policy, accounting, autograd, operators — is core's.
//!
//! **To add a backend**: implement both traits, run `conformance::main` against it, and name it in the command line.
//! The suite checks these rules:
//!
//! - *Addresses are [`Region`]s.* No pointer crosses this interface: WebGPU has none to give.
//! - *One in-order queue.* `upload`, `launch` and `download` take effect in the order of the calls. The very next call
//!   may reuse a freed block.
//! - *Core allocates every byte*, outputs and workspaces included. A backend allocates device memory only in
//!   [`DeviceMemory::alloc_segment`], plus once at construction a fixed amount that it reports through
//!   [`Backend::scratch_bytes`].
//! - *Fresh memory is garbage.*
//! - *Kernels are data.* Core validates each [`KernelCall`] once, before a backend sees it: operands are in bounds,
//!   have the right shape and type, and alias only if the kernel may work in place.
//! - *Unsupported is an answer.* If [`Backend::supports`] is false, the user gets an error that names the kernel.
//!   Nothing is composed from other kernels instead.

mod cost;
mod faulty;
mod forward;
pub mod kernel;
mod limited;
mod meta;
mod operand;
mod region;
mod segments;
mod validate;

pub use cost::Cost;
pub use faulty::{Faulty, FaultyCall};
pub use kernel::KernelCall;
pub use limited::Limited;
pub use meta::{DeviceProfile, Meta};
pub use operand::{Access, Operand};
pub use region::Region;
pub use segments::SegmentTable;
pub use validate::validate;

pub use crate::segment::SegmentId;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// The device's memory, as its driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that could still be allocated, by anyone.
    pub free_bytes: u64,
    /// Bytes that the device has.
    pub total_bytes: u64,
}

/// A part of the driver's used memory that no segment holds: a context, loaded kernels, a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Name of the holder, for reports.
    pub name: &'static str,
    /// Bytes, as the backend measured them when they were taken.
    pub bytes: u64,
}

/// Fixed properties of a device's memory.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Every block starts at a multiple of this many bytes. A power of two, at most 512.
    pub alignment: u64,
    /// The largest segment that can ever be allocated.
    pub max_segment_bytes: u64,
    /// The largest range that one operand of a kernel may span.
    pub max_binding_bytes: u64,
    /// Element types that the backend can store and compute with.
    pub dtypes: Vec<DType>,
}

/// The device's memory as an allocator sees it: segments, and the driver's figures.
pub trait DeviceMemory: Send + Sync {
    /// Fixed properties; they never change during the backend's life.
    fn limits(&self) -> &Limits;

    /// Takes `bytes` (> 0) from the driver. The contents are garbage.
    ///
    /// # Errors
    /// [`Error::DeviceFull`] if the device is only full now, [`Error::TooLarge`] if no amount of freeing could help. A
    /// backend never confuses the two.
    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId>;

    /// Gives a segment back. On return the memory is really free, and all queued work that uses the segment has
    /// completed. An unknown id is ignored.
    fn free_segment(&self, id: SegmentId);

    /// Free and total memory, as the *driver* reports them; `None` if it does not report them.
    fn memory_info(&self) -> Option<MemoryInfo>;

    /// True if this memory is the host's own (a processor, or a GPU that shares the host's memory), so that what the
    /// device takes is missing on the host. False by default.
    fn host_memory(&self) -> bool {
        false
    }

    /// The device's interface for virtual memory, used for expandable segments; `None` if it has none.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }
}

/// Segments whose address range is reserved first and backed by memory page by page.
///
/// A reserved range is a [`SegmentId`] like any other: regions inside its mapped part may be used by kernels.
pub trait VirtualMemory: Send + Sync {
    /// Reserves `bytes` of addresses without memory. They are later mapped and unmapped by whole pages of `page_bytes`,
    /// counted from the beginning; `bytes` is a multiple of `page_bytes`.
    ///
    /// # Errors
    /// The address space is exhausted.
    fn reserve(&self, bytes: u64, page_bytes: u64) -> Result<SegmentId>;

    /// Maps memory at `offset..offset + bytes`, which must not be mapped yet. Contents are garbage.
    ///
    /// # Errors
    /// [`Error::DeviceFull`] if the device has no memory left; nothing was mapped then.
    fn map(&self, id: SegmentId, offset: u64, bytes: u64) -> Result<()>;

    /// Unmaps the memory at `offset..offset + bytes`; the addresses stay reserved.
    fn unmap(&self, id: SegmentId, offset: u64, bytes: u64);

    /// Ends the reservation; everything in it must be unmapped.
    fn release(&self, id: SegmentId);
}

/// The float32 products whose factors may be rounded to TF32 (float32's exponent, ten mantissa bits), which tensor
/// cores multiply. Each variant includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tf32 {
    /// Convolutions, as in PyTorch by default (`torch.backends.cudnn.allow_tf32`).
    Convolutions,
    /// Products of matrices as well (`torch.backends.cuda.matmul.allow_tf32`).
    All,
}

/// What bounds the speed of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Moving bytes.
    Memory,
    /// Computing with numbers of a type.
    Arithmetic(DType),
}

/// A device that can also move bytes and run kernels, in the order of the calls.
pub trait Backend: DeviceMemory {
    /// The name on the command line, such as `cpu`.
    fn name(&self) -> &str;

    /// The device's own name, as its driver gives it.
    fn device_name(&self) -> String {
        self.name().to_string()
    }

    /// Describes slow work that is done once, when this device is first used, so that a user can be told; `None` by
    /// default.
    fn first_use(&self) -> Option<String> {
        None
    }

    /// True if values exist. False for `meta`, which accounts for memory and computes nothing.
    fn computes(&self) -> bool {
        true
    }

    /// Describes how bytes get from the host to the device and back, as part of a sentence: a bus, page-locked memory,
    /// a wait. `None` by default.
    fn how_it_copies(&self) -> Option<&'static str> {
        None
    }

    /// Copies host bytes into `dst` (`src.len()` = `dst.len`). The source may be reused on return.
    fn upload(&self, src: &[u8], dst: Region) -> Result<()>;

    /// Copies `src` to the host, after all work queued before it.
    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()>;

    /// Queues a kernel. The call has passed [`validate`] and [`Backend::supports`].
    ///
    /// # Errors
    /// Errors of the backend; [`Error::Unsupported`] for a kernel that it does not have.
    fn launch(&self, call: &KernelCall) -> Result<()>;

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// Any failure in the queue.
    fn synchronize(&self) -> Result<()>;

    /// True if the backend has this kernel for these types and shapes.
    fn supports(&self, call: &KernelCall) -> bool {
        let _ = call;
        true
    }

    /// Bytes of workspace that the backend's own algorithm wants for this call under the `native` profile. Core
    /// allocates them and passes them as the call's `workspace`. 0 by default.
    fn workspace_bytes(&self, call: &KernelCall) -> u64 {
        let _ = call;
        0
    }

    /// Device memory that the backend has held for itself since construction, outside any segment.
    fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Bytes of the workspace that the backend's library for matrix products wants. Under the `native` profile core
    /// allocates one for each [`Role`](crate::context::Role) at its first product, keeps it as PyTorch does, and passes
    /// it as the `workspace` of every [`Matmul`](kernel::Matmul). 0 by default: no library, or one without a workspace.
    fn gemm_workspace_bytes(&self) -> u64 {
        0
    }

    /// Turns on graphs of kernels. From now on kernels are collected until the host waits for the device, and a
    /// sequence that repeats is launched as one graph. Results, and memory in segments, stay the same.
    ///
    /// # Errors
    /// [`Error::Backend`] if the backend has no graphs (the default) or the driver is too old.
    fn use_graphs(&self) -> Result<()> {
        Err(Error::backend(self.name(), "has no graphs of kernels: it launches them one by one"))
    }

    /// Allows TF32 for these products of float32 from now on. Memory stays the same.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device has no TF32 arithmetic (the default).
    fn allow_tf32(&self, which: Tf32) -> Result<()> {
        let _ = which;
        Err(Error::backend(self.name(), "has no TF32: it computes float32 as it is"))
    }

    /// The most that the device's own instructions do in a second, measured for about `seconds` without any of the
    /// kernels: bytes that a copy reads and writes, or floating-point operations. `None`, the default, if the backend
    /// has nothing but its kernels to measure.
    fn roof(&self, bound: Bound, seconds: f64) -> Option<f64> {
        let _ = (bound, seconds);
        None
    }

    /// The parts of the used memory in [`DeviceMemory::memory_info`] that are not segments, as of now. Each part
    /// appears once, with 0 bytes if nothing was taken. Empty by default, for a backend that measures nothing.
    fn overheads(&self) -> Vec<Overhead> {
        Vec::new()
    }
}
