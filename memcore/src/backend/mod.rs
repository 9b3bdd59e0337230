//! The whole porting surface: what a device must offer.
//!
//! A backend is two small traits. [`DeviceMemory`] hands out segments; [`Backend`] moves bytes and
//! runs kernels in them. Everything else — allocation policy, accounting, autograd, operators — is core's.
//!
//! **To add a backend**: implement both traits, run `conformance::main` against it, and name it in the
//! command line. The rules that the suite checks:
//!
//! - *Addresses are [`Region`]s.* No pointer crosses this interface: WebGPU has none to give.
//! - *One in-order queue.* `upload`, `launch` and `download` take effect in the order of the calls, and a
//!   freed block may be reused by the very next call.
//! - *Core allocates every byte*, outputs and workspaces included. A backend allocates device memory only in
//!   [`DeviceMemory::alloc_segment`], and once at construction a fixed amount that it reports through
//!   [`Backend::scratch_bytes`].
//! - *Fresh memory is garbage.*
//! - *Kernels are data.* [`KernelCall`] is validated once, in core, before a backend sees it: operands are in
//!   bounds, of the right shape and type, and alias only where a kernel may work in place.
//! - *Unsupported is an answer.* [`Backend::supports`] = false becomes an error for the user that names the
//!   kernel; nothing is composed behind it.

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

/// What the driver says of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that could still be allocated, by anyone.
    pub free_bytes: u64,
    /// Bytes that the device has.
    pub total_bytes: u64,
}

/// A part of what the driver says is in use that no segment holds: a context, loaded kernels, a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// What holds it, for reports.
    pub name: &'static str,
    /// Its bytes, as the backend measured them when they were taken.
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

/// What an allocator may ask of a device: segments, and what the driver says of them.
pub trait DeviceMemory: Send + Sync {
    /// Fixed properties; the same for the backend's whole life.
    fn limits(&self) -> &Limits;

    /// Takes `bytes` (> 0) from the driver. The contents are garbage.
    ///
    /// # Errors
    /// [`Error::DeviceFull`] when the device is merely full,
    /// [`Error::TooLarge`] when no amount of freeing could help. Never confused.
    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId>;

    /// Gives a segment back. When this returns the memory is truly free again; work in the queue that
    /// uses the segment has been completed. An unknown id is ignored.
    fn free_segment(&self, id: SegmentId);

    /// What the *driver* says is free and total; `None` where it will not say.
    fn memory_info(&self) -> Option<MemoryInfo>;

    /// Whether this memory is the host's own, so that what the device takes the host has not: a processor, or a GPU that shares its memory. No, by
    /// default.
    fn host_memory(&self) -> bool {
        false
    }

    /// The device's virtual-memory interface, where it has one: for expandable segments.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }
}

/// Segments whose address range is reserved first and backed by memory piece by piece.
///
/// A reserved range is a [`SegmentId`] like any other: regions inside its mapped part may be used by kernels.
pub trait VirtualMemory: Send + Sync {
    /// Reserves `bytes` of addresses, without memory behind them. They will be mapped and unmapped by whole pages of
    /// `page_bytes`, counted from the beginning; `bytes` is a multiple of it.
    ///
    /// # Errors
    /// When the address space is exhausted.
    fn reserve(&self, bytes: u64, page_bytes: u64) -> Result<SegmentId>;

    /// Puts memory behind `offset..offset + bytes`, which must not be mapped. Contents are garbage.
    ///
    /// # Errors
    /// [`Error::DeviceFull`] when the device has no memory left; nothing was mapped then.
    fn map(&self, id: SegmentId, offset: u64, bytes: u64) -> Result<()>;

    /// Gives the memory behind `offset..offset + bytes` back; the addresses stay reserved.
    fn unmap(&self, id: SegmentId, offset: u64, bytes: u64);

    /// Gives up the reservation; everything in it must be unmapped.
    fn release(&self, id: SegmentId);
}

/// Products of float32 whose factors may be rounded to TF32: float32's exponent with ten bits behind the point, which tensor
/// cores multiply. Each allows what is before it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tf32 {
    /// Convolutions, as in PyTorch by default (`torch.backends.cudnn.allow_tf32`).
    Convolutions,
    /// Products of matrices as well (`torch.backends.cuda.matmul.allow_tf32`).
    All,
}

/// A device that can also move bytes and run kernels, in the order of the calls.
pub trait Backend: DeviceMemory {
    /// The name that the command line uses, such as `cpu`.
    fn name(&self) -> &str;

    /// The device's own name, as its driver gives it.
    fn device_name(&self) -> String {
        self.name().to_string()
    }

    /// What is done once, when this device is first used, and takes long enough to be told; nothing by default.
    fn first_use(&self) -> Option<String> {
        None
    }

    /// Whether values exist at all. `meta` says no: it accounts and does not compute.
    fn computes(&self) -> bool {
        true
    }

    /// How bytes get from the host to the device and back, as the part of a sentence: whether there is a bus, page-locked memory, a wait. `None`, as
    /// by default, where there is nothing to say.
    fn how_it_copies(&self) -> Option<&'static str> {
        None
    }

    /// Copies host bytes into `dst` (`src.len()` = `dst.len`). The source may be reused on return.
    fn upload(&self, src: &[u8], dst: Region) -> Result<()>;

    /// Copies `src` to the host, after everything queued before it.
    fn download(&self, src: Region, dst: &mut [u8]) -> Result<()>;

    /// Queues a kernel. The call has passed [`validate`] and [`Backend::supports`].
    ///
    /// # Errors
    /// The backend's own; a kernel that it does not have is [`Error::Unsupported`].
    fn launch(&self, call: &KernelCall) -> Result<()>;

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// Whatever failed in the queue.
    fn synchronize(&self) -> Result<()>;

    /// Whether the backend has this kernel for these types and shapes.
    fn supports(&self, call: &KernelCall) -> bool {
        let _ = call;
        true
    }

    /// Bytes of workspace that the backend's own algorithm wants for this call under the `native` profile;
    /// core allocates them and passes them as the call's `workspace`. 0 by default.
    fn workspace_bytes(&self, call: &KernelCall) -> u64 {
        let _ = call;
        0
    }

    /// Device memory that the backend holds for itself since construction, outside any segment.
    fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Bytes of the workspace that the backend's library of matrix products wants. Under the `native` profile core
    /// allocates one for each [`Role`](crate::context::Role) at its first product, keeps it as PyTorch does, and passes it
    /// as the `workspace` of every [`Matmul`](kernel::Matmul). 0 by default: no library, or none that wants one.
    fn gemm_workspace_bytes(&self) -> u64 {
        0
    }

    /// From now on kernels are collected until the host waits for the device, and a sequence that comes again is launched as
    /// one graph. What is computed, and what memory it takes in segments, stays the same.
    ///
    /// # Errors
    /// [`Error::Backend`] where there is no such thing, as by default, or the driver is too old.
    fn use_graphs(&self) -> Result<()> {
        Err(Error::backend(self.name(), "has no graphs of kernels: it launches them one by one"))
    }

    /// From now on these products of float32 may be computed in TF32. Memory stays the same.
    ///
    /// # Errors
    /// [`Error::Backend`] where the device has no such arithmetic, as by default.
    fn allow_tf32(&self, which: Tf32) -> Result<()> {
        let _ = which;
        Err(Error::backend(self.name(), "has no TF32: it computes float32 as it is"))
    }

    /// What [`DeviceMemory::memory_info`] counts as in use besides segments, part by part, by now. Each part appears once,
    /// with 0 bytes where nothing was taken. Empty, as by default, where the backend measures nothing.
    fn overheads(&self) -> Vec<Overhead> {
        Vec::new()
    }
}
