//! Streams.

/// A queue of work on a device; blocks belong to the stream that they were allocated for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(pub u32);

impl Stream {
    /// The stream on which everything runs by default.
    pub const DEFAULT: Stream = Stream(0);
}
