//! Verdict: the cause of a failed request, in one word.

use std::fmt;

/// Cause of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request exceeds what the device, or the limit set on it, can ever give.
    Hopeless,
    /// Too few bytes were free, even in total.
    Full,
    /// Enough bytes were left, in PyTorch's segments and on the device, but not in one piece.
    Fragmented,
    /// The driver refused although it had more than was asked for.
    Refused,
    /// Device memory ran out for a component outside of PyTorch's allocator: a library, the driver.
    Outside,
    /// The host's memory ran out, not the device's.
    Host,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Hopeless => "hopeless",
            Verdict::Full => "full",
            Verdict::Fragmented => "fragmented",
            Verdict::Refused => "refused though free",
            Verdict::Outside => "outside the allocator",
            Verdict::Host => "host memory",
        })
    }
}
