//! The largest batch (or sequence, or any other size) for a budget, and the law of the peak up to there.
//!
//! Two questions, answered from dry runs alone. *What fits?* is asked of the device itself: a run on one of that size either ends or runs out of
//! memory, cache and fragmentation included; bisection finds the border ([`largest`]). *Why?* is the law of the peak ([`Law`]): the tensors of a run are the
//! same for all sizes between two borders and each of them grows as a polynomial, so that a few runs give every run between them.

mod law;
mod outline;
mod search;
mod trace;

pub use law::{Law, Piece};
pub use outline::{Stretch, outline};
pub use search::{Fit, Tried, largest};

use lab_base::error::Result;
use memcore::Device;

/// Device that a run is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A device with unlimited memory, which keeps the history of its events.
    Endless,
    /// A device with the budget's memory.
    Budget,
}

/// Trains with one size on a fresh device and returns the device.
pub type Run<'a> = dyn Fn(usize, Room) -> Result<Device> + 'a;

/// Peak of requested bytes, from the history of a device.
pub fn requested_peak(device: &Device) -> u64 {
    trace::Trace::from_device(device, 0).requested_peak()
}

/// Separates running out of memory, which is an answer, from all other errors.
///
/// # Errors
/// The run's, but for its memory being too small.
pub fn fits(outcome: Result<Device>) -> Result<Result<Device, Box<memcore::memory::OutOfMemory>>> {
    match outcome {
        Ok(device) => Ok(Ok(device)),
        Err(lab_base::Error::Core(memcore::Error::OutOfMemory(report))) => Ok(Err(report)),
        Err(error) => Err(error),
    }
}
