//! The name of a segment of device memory. Errors carry it, so it lies below them.

/// A segment of device memory: what one call of the driver gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);
