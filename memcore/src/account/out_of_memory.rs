//! Who held the memory when it ran out: what an error says of it.

use std::fmt;

use super::category::{Category, CategoryBytes};
use super::rings::Rings;

/// Whether anything could have helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request exceeds what the device, or the limit set on it, can ever give.
    Hopeless,
    /// Clients hold so much that the rest is smaller than the request.
    Full,
    /// Enough bytes are free, in the cache and on the device, but not in one piece.
    Fragmented,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Hopeless => "hopeless",
            Verdict::Full => "full",
            Verdict::Fragmented => "fragmented",
        })
    }
}

/// An allocation failed after everything that could be given back was. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub requested_bytes: u64,
    /// The size of the block that was looked for.
    pub block_bytes: u64,
    /// The size of the segment that the driver was asked for.
    pub segment_bytes: u64,
    /// Whether anything could have helped.
    pub verdict: Verdict,
    /// What the driver says is free.
    pub free_bytes: Option<u64>,
    /// What the driver says there is.
    pub total_bytes: Option<u64>,
    /// The most that the allocator was allowed to take, where a limit was set.
    pub allowed_bytes: Option<u64>,
    /// The five rings at that moment.
    pub rings: Rings,
    /// What clients held, by category.
    pub by_category: CategoryBytes,
    /// The scopes that held most, by path, most first.
    pub top_scopes: Vec<(String, u64)>,
    /// What emptying the cache gave back, to no avail.
    pub released_bytes: u64,
    /// Free blocks of private pools, which serve nobody else.
    pub private_cached_bytes: u64,
    /// The largest request that would have been served.
    pub largest_fit_bytes: u64,
    /// Refused ahead of the driver, because it would exceed the configured fraction of the device.
    pub preemptive: bool,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: tried to allocate {}", Binary(self.requested_bytes))?;
        if self.segment_bytes != self.requested_bytes {
            write!(f, " (a segment of {})", Binary(self.segment_bytes))?;
        }
        if let (Some(free), Some(total)) = (self.free_bytes, self.total_bytes) {
            write!(f, " with {} of {} free on the device", Binary(free), Binary(total))?;
        }
        if let Some(allowed) = self.allowed_bytes {
            write!(f, ", {} allowed", Binary(allowed))?;
        }
        f.write_str(match self.verdict {
            Verdict::Hopeless => "; hopeless: the device can never give that much",
            Verdict::Full => "; the device is full",
            Verdict::Fragmented => "; fragmented: enough is free, but not in one piece",
        })?;
        let Rings { allocated_bytes, active_bytes, reserved_bytes, .. } = self.rings;
        write!(f, ". {} are allocated", Binary(allocated_bytes))?;
        let held = Category::ALL.into_iter().filter(|&category| self.by_category[category as usize] > 0);
        let mut held: Vec<_> = held.map(|category| (self.by_category[category as usize], category)).collect();
        held.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (index, (bytes, category)) in held.iter().enumerate() {
            write!(f, "{}{category} {}", if index == 0 { ": " } else { ", " }, Binary(*bytes))?;
        }
        write!(f, "; {} are cached", Binary(reserved_bytes.saturating_sub(active_bytes)))?;
        if self.released_bytes > 0 {
            write!(f, " after {} were given back", Binary(self.released_bytes))?;
        }
        write!(f, ". At most {} would have fit", Binary(self.largest_fit_bytes))?;
        let named = self.top_scopes.iter().filter(|(path, _)| !path.is_empty());
        for (index, (path, bytes)) in named.enumerate() {
            write!(f, "{}{path} {}", if index == 0 { ". Most is held by " } else { ", " }, Binary(*bytes))?;
        }
        f.write_str(".")
    }
}

/// Bytes in binary units, with the exact number beside where it is not itself shown.
struct Binary(u64);

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match UNITS.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{:.2} {name} ({} bytes)", self.0 as f64 / *unit as f64, self.0),
            None => write!(f, "{} bytes", self.0),
        }
    }
}
