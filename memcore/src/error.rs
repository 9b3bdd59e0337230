//! The one error type of the core. Variants carry fields; sentences are made when an error is displayed.

use std::fmt;

use crate::account::OutOfMemory;
use crate::dtype::DType;
use crate::segment::SegmentId;

/// A result with the core's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong below the laboratory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device has no room for a segment *now*: freeing memory can help.
    /// [`DeviceMemory::alloc_segment`](crate::backend::DeviceMemory::alloc_segment) reports it; an allocator turns it
    /// into [`Error::OutOfMemory`] when nothing helped.
    #[error("the device is full: {requested_bytes} bytes requested, {free} free", free = Known(*.free_bytes))]
    DeviceFull {
        /// Size of the requested segment.
        requested_bytes: u64,
        /// Free bytes, as the driver reports them; `None` if it does not report them.
        free_bytes: Option<u64>,
    },
    /// No device of this kind can ever hold such a segment: freeing memory cannot help.
    #[error("a segment of {requested_bytes} bytes is beyond this device's limit of {limit_bytes}")]
    TooLarge {
        /// Size of the requested segment.
        requested_bytes: u64,
        /// The largest segment that the device can hold.
        limit_bytes: u64,
    },
    /// An allocation failed after everything that could be given back was given back. Carries the account of who holds
    /// the memory.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// Shapes that do not fit an operation.
    #[error("{op}: {detail}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The shapes, and what would fit.
        detail: String,
    },
    /// An element type that an operation does not take.
    #[error("{op}: {operand} is {found}, expected {expected}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The operand at fault.
        operand: &'static str,
        /// Its type.
        found: DType,
        /// The types that the operation takes.
        expected: &'static str,
    },
    /// A kernel call that breaks the backend contract: a bug in the code that built it.
    #[error("invalid call of kernel {kernel}: {operand}: {problem}")]
    InvalidCall {
        /// The kernel.
        kernel: &'static str,
        /// The operand at fault.
        operand: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The backend has no such kernel for these types.
    #[error("backend {backend} has no kernel {kernel} for {dtype}")]
    Unsupported {
        /// The backend.
        backend: String,
        /// The kernel.
        kernel: &'static str,
        /// The type of the kernel's first operand.
        dtype: DType,
    },
    /// A segment id that the backend does not know.
    #[error("unknown segment {0:?}")]
    UnknownSegment(SegmentId),
    /// Operands that live on different devices.
    #[error("{op}: operands live on different devices ({lhs} and {rhs})")]
    DeviceMismatch {
        /// The operation.
        op: &'static str,
        /// Name of the first operand's device.
        lhs: String,
        /// Name of the other operand's device.
        rhs: String,
    },
    /// Backward reached a node whose saved values were released.
    #[error("{op}: backward a second time: its saved values were released by the first (use retain_graph)")]
    BackwardTwice {
        /// The node.
        op: &'static str,
    },
    /// A saved value was written in place after it was saved.
    #[error("{op}: saved value {role:?} was modified in place: it is at version {found}, expected {expected}")]
    StaleSavedValue {
        /// The node that saved it.
        op: &'static str,
        /// Its role in that node.
        role: &'static str,
        /// The version at the time of saving.
        expected: u32,
        /// The version now.
        found: u32,
    },
    /// A checkpointed block's recomputation has all values that backward needs. This error stops the recomputation; it
    /// is never returned to a caller outside.
    #[error("the recomputation is done")]
    RecomputationDone,
    /// Backward from a tensor that is not a scalar, without an explicit gradient.
    #[error("backward needs a scalar or an explicit gradient, not shape {dims:?}")]
    NotScalar {
        /// The shape.
        dims: Vec<usize>,
    },
    /// A tensor without history was asked for its gradient.
    #[error("{op}: the tensor does not require gradients and has no history")]
    NoHistory {
        /// The operation.
        op: &'static str,
    },
    /// The device computes nothing, so there are no values to read.
    #[error("device {device} accounts memory but holds no values: {op} is not possible there")]
    NoValues {
        /// The device.
        device: String,
        /// The operation that was asked for.
        op: &'static str,
    },
    /// An option or name that is not accepted.
    #[error("{what}: {problem}")]
    Invalid {
        /// The option.
        what: String,
        /// What is wrong, and what would be accepted.
        problem: String,
    },
    /// An error of the backend.
    #[error("backend {backend}: {source}")]
    Backend {
        /// The backend.
        backend: String,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Creates an [`Error::Shape`].
    pub fn shape(op: &'static str, detail: impl Into<String>) -> Self {
        Error::Shape { op, detail: detail.into() }
    }

    /// Creates an [`Error::Invalid`].
    pub fn invalid(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Invalid { what: what.into(), problem: problem.into() }
    }

    /// Wraps an error of the backend.
    pub fn backend(backend: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Backend { backend: backend.into(), source: source.into() }
    }

    /// True if memory ran out: the device was full, the segment was too large, or the allocator gave up.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::DeviceFull { .. } | Error::TooLarge { .. } | Error::OutOfMemory(_))
    }
}

/// Displays a number that may be unknown.
struct Known(Option<u64>);

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{bytes}"),
            None => f.write_str("an unknown number"),
        }
    }
}
