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
    /// The device says that it has what it was asked for, and did not give it: something else ran short, such as the host's memory.
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

/// What a run takes with memory enough, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The most that is allocated at once.
    pub allocated_bytes: u64,
    /// The most that is reserved, under the same settings of the allocator.
    pub reserved_bytes: u64,
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
    /// Whether anything could have helped: as far as the moment of the failure tells, unless [`needs`](Self::needs) are known.
    pub verdict: Verdict,
    /// What the whole run takes with memory enough, where that is known.
    pub needs: Option<Needs>,
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

impl OutOfMemory {
    /// The same report, judged by what the whole run takes with memory enough: fragmented where its tensors alone would fit, else full. Free
    /// pieces that would serve the request that failed help nobody when the tensors of a later moment fit into no device of this size.
    #[must_use]
    pub fn judged_by(mut self, needs: Needs) -> Self {
        self.needs = Some(needs);
        self.verdict = match self.room_bytes() {
            _ if matches!(self.verdict, Verdict::Hopeless | Verdict::Refused) => self.verdict,
            Some(room) if needs.allocated_bytes > room => Verdict::Full,
            _ if self.missing_bytes().is_some() => Verdict::Fragmented,
            // The run would fit: something else took the memory, of which only the moment knows.
            _ => self.verdict,
        };
        self
    }

    /// Bytes that the whole run needs beyond what there was for it; `None` where that is not known.
    pub fn missing_bytes(&self) -> Option<u64> {
        let missing = self.needs?.reserved_bytes.checked_sub(self.room_bytes()?)?;
        (missing > 0).then_some(missing)
    }

    /// Bytes that this process could have had at that moment: what it had reserved and what was free, up to what it was allowed.
    fn room_bytes(&self) -> Option<u64> {
        let obtainable = self.free_bytes?.saturating_add(self.rings.reserved_bytes);
        Some(obtainable.min(self.allowed_bytes.unwrap_or(u64::MAX)))
    }

    /// The verdict in words, with what is missing.
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
                f.write_str("; fragmented: the tensors would fit, but what is free lies in pieces")?
            }
            (Verdict::Fragmented, None) => self.write_pieces(f)?,
        }
        match known {
            Some((needs, missing)) => write!(
                f,
                ". With memory enough the run reserves {}: {} more than there is",
                Binary(needs.reserved_bytes),
                Binary(missing)
            ),
            None => Ok(()),
        }
    }

    /// What is known of pieces at that moment; whether the run would fit without them is not.
    fn write_pieces(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active = self.rings.active_bytes;
        let room = self.room_bytes().unwrap_or(0);
        let used = 100.0 * active as f64 / room.max(1) as f64;
        write!(f, "; {used:.1} % in use, and the {} that are not lie in pieces", Binary(room.saturating_sub(active)))
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
