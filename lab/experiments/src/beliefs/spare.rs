//! Does `empty_cache` give a program more memory? Compares the largest block that a program gets with its cache, and
//! after emptying it.

use lab_base::error::Result;
use lab_base::figures::both as bytes;
use memcore::{Array, DType, Device};

use super::testbed::{Batches, Judged, Testbed};
use crate::columns::Columns;
use crate::session::{Session, Variable};
use crate::tables::text;
use crate::{Outcome, Setup, Verdict, in_bytes};

/// Blocks of 10 MiB and more come in segments whose size is a multiple of this.
const SEGMENT: u64 = 2 << 20;
/// Smallest device: the memory that is free on it after training is such a block.
const ROOM: u64 = 32 << 20;

/// One program, with or without emptying its cache.
struct Trial {
    empties: bool,
    /// Bytes reserved after training, before the block is requested. No other program can have them.
    reserved: u64,
    /// True if the largest block that should fit does fit.
    fits: bool,
    /// True if a block of one byte more fits too.
    one_more_fits: bool,
}

impl Trial {
    /// Returns `block` if it is the largest one that the program gets, else 0.
    fn largest(&self, block: u64) -> u64 {
        if self.fits && !self.one_more_fits { block } else { 0 }
    }
}

pub(super) fn measure(testbed: &Testbed, setup: &Setup<'_>, batches: Batches, outcome: &mut Outcome) -> Result<Judged> {
    // Twice the activations of the step, so that training fits and the cache is a part of the device.
    let room = (batches.large as u64 * (1 << 20)).next_power_of_two().max(ROOM);
    let (device, capacity) = testbed.open_limited(room, setup.seed);
    drop(device);
    // The rest of the device when nothing is cached.
    let largest = (capacity - trained(testbed, setup, batches, room, true)?.1) / SEGMENT * SEGMENT;
    let fits = |fits: bool| text(if fits { "yes" } else { "no" });
    let columns = Columns::new()
        .words("before the block", "before it is asked for", |t: &Trial| name(t.empties))
        .measured("largest_block_bytes", |t| t.largest(largest))
        .bytes("reserved_bytes", "reserved", |t| t.reserved)
        .cell("it fits", |t| fits(t.fits))
        .cell("one byte more fits", |t| fits(t.one_more_fits));
    let mut trials = Vec::new();
    for empties in [false, true] {
        let (reserved, fits) = asked(testbed, setup, batches, room, empties, largest)?;
        let (_, one_more_fits) = asked(testbed, setup, batches, room, empties, largest + 1)?;
        let trial = Trial { empties, reserved, fits, one_more_fits };
        outcome.rows.push(columns.measurement(&trial));
        trials.push(trial);
    }
    let title = format!("On a device of {}, a block of {largest} bytes after training", bytes(capacity));
    outcome.tables.push(columns.table(title, &trials));
    let [kept, emptied] = &trials[..] else { return Ok((Verdict::NotTested, String::new(), "0 trials".into())) };
    let same = (kept.fits, kept.one_more_fits) == (emptied.fits, emptied.one_more_fits);
    let condition = format!(
        "to the program itself it gives 0 bytes: the largest block it gets is {} with its cache and without, since the allocator empties the cache \
         itself before it fails; other programs on the device get {} of {}",
        bytes(largest),
        bytes(kept.reserved.saturating_sub(emptied.reserved)),
        bytes(kept.reserved)
    );
    let blocks = [("largest block, cache kept", kept.largest(largest)), ("emptied", emptied.largest(largest))];
    Ok((if same { Verdict::Fails } else { Verdict::Holds }, in_bytes(blocks), condition))
}

/// Trains on a fresh device and requests one block. Returns the bytes that were reserved before the request, and
/// whether the block was given.
fn asked(
    testbed: &Testbed,
    setup: &Setup<'_>,
    batches: Batches,
    room: u64,
    empties: bool,
    block: u64,
) -> Result<(u64, bool)> {
    // The model stays alive while the block is requested.
    let (session, reserved) = trained(testbed, setup, batches, room, empties)?;
    Ok((reserved, takes(&session.network.device, block)?))
}

/// Trains a model for two steps on a fresh device and deletes its results. Returns the session, and the bytes that
/// are then reserved.
fn trained(testbed: &Testbed, setup: &Setup<'_>, batches: Batches, room: u64, empties: bool) -> Result<(Session, u64)> {
    let (device, _) = testbed.open_limited(room, setup.seed);
    let mut session = Session::simple_cnn(&device, setup.seed)?;
    for step in 0..2 {
        session.whole_step(&format!("s{step}"), batches.large)?;
    }
    for variable in [Variable::Output, Variable::Loss, Variable::Batch] {
        session.delete(variable)?;
    }
    if empties {
        device.empty_cache();
    }
    let reserved = device.stats().reserved_bytes.all.current;
    Ok((session, reserved))
}

fn takes(device: &Device, bytes: u64) -> Result<bool> {
    match Array::empty(device, &[bytes as usize], DType::U8) {
        Ok(_) => Ok(true),
        Err(error) if error.is_out_of_memory() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn name(empties: bool) -> &'static str {
    if empties { "empty_cache()" } else { "nothing" }
}
