//! Turns the events of a recorded training script into operations.
//!
//! Such a recording holds the results of calls, not the calls. A failed allocation is an event without a result, and memory returned to the driver
//! may have been requested by the program or decided by the allocator. Streams are not recorded: all events count as one stream's, and a free that
//! had to wait waits here for a second stream.

use super::fields::{Columns, ended, unknown};
use super::trace::{Fault, Operation, Settings};

/// The stream that pending frees wait for.
const OTHER_STREAM: u16 = 1;

/// Returns the operations that the columns `ev…` describe.
pub(super) fn operations(columns: &Columns, settings: &Settings) -> Result<Vec<Operation>, Fault> {
    let mut reader = Reader { columns, settings, sizes: 0, frees: 0, reserved_bytes: 0, lives: Vec::new() };
    let mut operations = Vec::with_capacity(columns.kinds.len());
    if columns.kinds.contains(&b'q') {
        operations.push(Operation::HoldEvents);
    }
    let mut allocations = 0;
    let mut at = 0;
    while at < columns.kinds.len() {
        match columns.kinds[at] {
            b'a' => {
                reader.lives.push((allocations, true));
                allocations += 1;
                operations.push(Operation::Allocate { bytes: reader.size(at)?, stream: 0, pool: 0, served: true });
            }
            b'o' => {
                allocations += 1;
                operations.push(Operation::Allocate { bytes: reader.size(at)?, stream: 0, pool: 0, served: false });
            }
            b'f' => operations.push(Operation::Free { allocation: reader.freed(at)? }),
            b'q' => {
                let allocation = reader.freed(at)?;
                reader.size(at)?;
                operations.push(Operation::RecordStream { allocation, stream: OTHER_STREAM });
                operations.push(Operation::Free { allocation });
            }
            // They complete together, when the allocator looks.
            b'c' if at > 0 && columns.kinds[at - 1] == b'c' => {}
            b'c' => operations.push(Operation::CompleteEvents),
            b'S' | b'M' => reader.reserved_bytes = reader.reserved_bytes.saturating_add(reader.size(at)?),
            b'F' | b'U' => {
                let end = at + columns.kinds[at..].iter().take_while(|kind| matches!(kind, b'F' | b'U')).count();
                if reader.given_back(at, end)? {
                    operations.push(Operation::EmptyCache);
                }
                at = end;
                continue;
            }
            b's' => drop(reader.size(at)?),
            other => return Err(unknown(at, other)),
        }
        at += 1;
    }
    let used = [("ev_size", &columns.size, reader.sizes), ("ev_free_ref", &columns.free_ref, reader.frees)];
    ended(&used, columns.kinds.len())?;
    Ok(operations)
}

struct Reader<'a> {
    columns: &'a Columns,
    settings: &'a Settings,
    /// Entries used of `ev_size` and `ev_free_ref`.
    sizes: usize,
    frees: usize,
    /// Segments and pages, as recorded.
    reserved_bytes: u64,
    /// For each `a`, its number among the allocations (failed ones included), and whether it lives.
    lives: Vec<(u32, bool)>,
}

impl Reader<'_> {
    fn size(&mut self, at: usize) -> Result<u64, Fault> {
        let size = self.columns.size.natural(self.sizes, at, "size")?;
        self.sizes += 1;
        Ok(size)
    }

    fn freed(&mut self, at: usize) -> Result<u32, Fault> {
        let named = self.columns.free_ref.natural(self.frees, at, "free_ref")?;
        self.frees += 1;
        let made = self.lives.len();
        match usize::try_from(named).ok().and_then(|named| self.lives.get_mut(named)) {
            Some((allocation, lives)) if *lives => {
                *lives = false;
                Ok(*allocation)
            }
            Some(_) => Err(Fault::new(at, format!("frees allocation {named}, which was freed before"))),
            None => Err(Fault::new(at, format!("frees allocation {named}, but only {made} were made until then"))),
        }
    }

    /// True if the program itself asked for events `at..end`, which return memory to the driver. The allocator returns memory by itself only when the
    /// driver refuses, or when it collects old segments.
    fn given_back(&mut self, at: usize, end: usize) -> Result<bool, Fault> {
        let before = self.reserved_bytes;
        for event in at..end {
            self.reserved_bytes = self.reserved_bytes.saturating_sub(self.size(event)?);
        }
        let next = self.columns.kinds.get(end);
        let limit = self.settings.capacity_bytes.map(|bytes| match self.settings.memory_fraction {
            Some(fraction) => (bytes as f64 * fraction) as u64,
            None => bytes,
        });
        Ok(match next {
            Some(b'o') => false,
            Some(b'S' | b'M') => {
                let wanted = self.columns.size.natural(self.sizes, end, "size")?;
                let refused = limit.is_some_and(|limit| before.saturating_add(wanted) > limit);
                !refused && !self.settings.alloc_conf.contains("garbage_collection_threshold")
            }
            _ => true,
        })
    }
}
