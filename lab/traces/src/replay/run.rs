//! Runs a trace through an allocator.

use lab_base::error::Result;
use memcore::memory::{Allocator, Block, BlockId, DriverEvent, Stream};

use super::trace::{Operation, Trace};

/// Observer of a replay. All methods do nothing unless overridden.
pub trait Observer {
    /// A call of the driver during an operation.
    fn driver(&mut self, operation: usize, event: DriverEvent) {
        let _ = (operation, event);
    }

    /// The result of an allocation; `None` if it failed for lack of memory, or was of no bytes.
    fn allocated(&mut self, operation: usize, block: Option<&Block>) {
        let _ = (operation, block);
    }

    /// The end of an operation.
    fn after<A: Allocator + ?Sized>(&mut self, operation: usize, allocator: &A) {
        let _ = (operation, allocator);
    }
}

/// Observer that does nothing, for timing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// No block: not served, or freed.
const NONE: u32 = u32::MAX;

/// Runs all operations through an empty allocator. Requests that fail for lack of memory are part of a replay: the program continues without them. A
/// request that failed in the recording and that the policy serves is freed at once and is in no peak; the peaks of the allocator's statistics then
/// begin anew.
///
/// A plan keeps its one segment: without it, it would serve nothing.
pub fn replay<A, O>(trace: &Trace, allocator: &mut A, observer: &mut O) -> Result<()>
where
    A: Allocator + ?Sized,
    O: Observer,
{
    resume(trace, allocator, &[], observer)
}

/// Like [`replay`], through an allocator that holds the results of the first allocations already.
pub(super) fn resume<A, O>(trace: &Trace, allocator: &mut A, held: &[Block], observer: &mut O) -> Result<()>
where
    A: Allocator + ?Sized,
    O: Observer,
{
    let mut blocks: Vec<u32> = Vec::with_capacity(trace.allocations());
    let keeps = allocator.name() == "planned";
    for (at, operation) in trace.operations().iter().enumerate() {
        let driver = &mut |event| observer.driver(at, event);
        match *operation {
            Operation::Allocate { .. } if blocks.len() < held.len() => {
                let block = &held[blocks.len()];
                observer.allocated(at, Some(block));
                blocks.push(block.id.0);
            }
            Operation::Allocate { bytes: 0, .. } => {
                blocks.push(NONE);
                observer.allocated(at, None);
            }
            Operation::Allocate { bytes, stream, pool, served } => {
                if pool != 0 {
                    allocator.enter_pool(pool);
                }
                let block = allocator.allocate(bytes, Stream(u32::from(stream)), driver);
                if pool != 0 {
                    allocator.leave_pool(pool);
                }
                match block {
                    Ok(block) => {
                        observer.allocated(at, Some(&block));
                        if !served {
                            allocator.free(block.id, &mut |event| observer.driver(at, event));
                            // The program never held the block: it is in no peak.
                            allocator.reset_peak_stats();
                        }
                        blocks.push(if served { block.id.0 } else { NONE });
                    }
                    Err(error) if error.is_out_of_memory() => {
                        observer.allocated(at, None);
                        blocks.push(NONE);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Operation::Free { allocation } => {
                let block = std::mem::replace(&mut blocks[allocation as usize], NONE);
                if block != NONE {
                    allocator.free(BlockId(block), driver);
                }
            }
            Operation::RecordStream { allocation, stream } => {
                let block = blocks[allocation as usize];
                if block != NONE {
                    allocator.record_stream(BlockId(block), Stream(u32::from(stream)));
                }
            }
            Operation::EmptyCache if keeps => {}
            Operation::EmptyCache => drop(allocator.empty_cache(driver)),
            Operation::ResetPeak => allocator.reset_peak_stats(),
            Operation::HoldEvents => allocator.hold_events(),
            Operation::CompleteEvents => allocator.complete_events(),
        }
        observer.after(at, &*allocator);
    }
    Ok(())
}
