//! The name of a segment of device memory. Errors carry it, so it lies below them.

/// The id of a segment of device memory: the memory of one driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);
