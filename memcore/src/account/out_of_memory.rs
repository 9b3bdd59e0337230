//! The account of an out-of-memory error: who held the memory.

use std::fmt;

use super::category::{Category, CategoryBytes};
use super::rings::Rings;

/// The cause of a failed allocation, and so whether anything could have helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request exceeds what the device, or the limit set on it, can ever give.
    Hopeless,
    /// Clients hold so much that the rest of the memory is smaller than the request.
    Full,
    /// Enough bytes are free, in the cache and on the device, but not in one piece.
    Fragmented,
    /// The device reported enough free memory, but did not give it: something else ran short, such as the host's
    /// memory.
    Refused,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Hopeless => "hopeless",
            Verdict::Full => "full",
            Verdict::Fragmented => "fragmented",
            Verdict::Refused => "refused",
        })
    }
}

/// Bytes that a run takes on a device with enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The most that is allocated at one time.
    pub allocated_bytes: u64,
    /// The most that is reserved at one time, under the same allocator settings.
    pub reserved_bytes: u64,
}

/// An allocation that failed after everything that could be given back was given back. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Size of the request.
    pub requested_bytes: u64,
    /// Size of the block that the allocator looked for.
    pub block_bytes: u64,
    /// Size of the segment that the allocator asked the driver for.
    pub segment_bytes: u64,
    /// The cause, as far as the moment of the failure tells. With [`needs`](Self::needs), judged for the whole run.
    pub verdict: Verdict,
    /// Bytes that the whole run takes on a device with enough memory; `None` if unknown.
    pub needs: Option<Needs>,
    /// Free bytes, as the driver reports them.
    pub free_bytes: Option<u64>,
    /// Total bytes, as the driver reports them.
    pub total_bytes: Option<u64>,
    /// The most that the allocator was allowed to take; `None` without a limit.
    pub allowed_bytes: Option<u64>,
    /// The five sizes at that moment.
    pub rings: Rings,
    /// Bytes that clients held, by category.
    pub by_category: CategoryBytes,
    /// Scopes that held most, by path, largest first.
    pub top_scopes: Vec<(String, u64)>,
    /// Bytes that emptying the cache gave back, without making the request fit.
    pub released_bytes: u64,
    /// Free blocks of private pools, which serve no other user.
    pub private_cached_bytes: u64,
    /// The largest request that would have been served.
    pub largest_fit_bytes: u64,
    /// True if the allocator refused without asking the driver, because the configured fraction of the device would be
    /// exceeded.
    pub preemptive: bool,
}

impl OutOfMemory {
    /// Returns the same report with a verdict for the whole run: fragmented if its tensors alone would fit, else full.
    /// A free block that would serve the failed request does not help when a later moment's tensors fit into no device
    /// of this size.
    #[must_use]
    pub fn judged_by(mut self, needs: Needs) -> Self {
        self.needs = Some(needs);
        self.verdict = match self.room_bytes() {
            _ if matches!(self.verdict, Verdict::Hopeless | Verdict::Refused) => self.verdict,
            Some(room) if needs.allocated_bytes > room => Verdict::Full,
            _ if self.missing_bytes().is_some() => Verdict::Fragmented,
            // The whole run would fit, so something else took the memory. Only the moment of the failure tells what.
            _ => self.verdict,
        };
        self
    }

    /// Bytes that the whole run needs beyond those it could have; `None` if unknown.
    pub fn missing_bytes(&self) -> Option<u64> {
        let missing = self.needs?.reserved_bytes.checked_sub(self.room_bytes()?)?;
        (missing > 0).then_some(missing)
    }

    /// Bytes that this process could have had at that moment: reserved plus free, up to its limit.
    fn room_bytes(&self) -> Option<u64> {
        let obtainable = self.free_bytes?.saturating_add(self.rings.reserved_bytes);
        Some(obtainable.min(self.allowed_bytes.unwrap_or(u64::MAX)))
    }

    /// Writes the verdict in words, with the missing bytes.
    fn write_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.needs.zip(self.missing_bytes());
        match (self.verdict, known) {
            (Verdict::Hopeless, _) => f.write_str("; hopeless: the device can never give that much")?,
            (Verdict::Refused, _) => {
                f.write_str("; refused though it is free: something else ran short, such as the host's memory")?
            }
            (Verdict::Full, Some(_)) => f.write_str("; full, however it is cut")?,
            (Verdict::Full, None) => f.write_str("; the device is full")?,
            (Verdict::Fragmented, Some(_)) => {
                f.write_str("; fragmented: the tensors would fit, but the free memory is in pieces")?
            }
            (Verdict::Fragmented, None) => self.write_pieces(f)?,
        }
        match known {
            Some((needs, missing)) => write!(
                f,
                ". With enough memory the run reserves {}: {} more than there is",
                Binary(needs.reserved_bytes),
                Binary(missing)
            ),
            None => Ok(()),
        }
    }

    /// Writes what is known of fragmentation at that moment. Whether the run would fit without it is unknown.
    fn write_pieces(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active = self.rings.active_bytes;
        let room = self.room_bytes().unwrap_or(0);
        let used = 100.0 * active as f64 / room.max(1) as f64;
        write!(f, "; {used:.1} % in use, and the free {} are in pieces", Binary(room.saturating_sub(active)))
    }
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
        self.write_verdict(f)?;
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

/// Displays bytes in binary units, followed by the exact number if that is not itself shown.
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
