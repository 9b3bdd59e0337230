//! Why a request failed, in a word.

use std::fmt;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request exceeds what the device, or the limit set on it, can ever give.
    Hopeless,
    /// Too little was left, however it is cut.
    Full,
    /// Enough bytes were left, in PyTorch's segments and on the device, but not in one piece.
    Fragmented,
    /// The driver refused although it had more than was asked for.
    Refused,
    /// Device memory ran out for something beside PyTorch's allocator: a library, the driver.
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
