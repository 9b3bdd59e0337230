//! The time that the device takes for calls, by two events of the driver.

use cudarc::driver::sys;

use crate::driver::{Driven, driven};
use crate::queue::Queue;

/// Calls that are timed. One before them should not be: it may load kernels.
const CALLS: usize = 3;

/// One of two ways replaces the preferred one if it takes less than this part of its time: smaller differences are noise.
pub(crate) const CLEARLY: f32 = 0.97;

/// Two events of the driver around some work.
pub(crate) struct Timer<'a> {
    queue: &'a Queue,
    events: [sys::CUevent; 2],
}

impl<'a> Timer<'a> {
    pub(crate) fn new(queue: &'a Queue) -> Driven<Self> {
        let mut timer = Self { queue, events: [std::ptr::null_mut(); 2] };
        for event in &mut timer.events {
            driven!(cuEventCreate(event, sys::CUevent_flags::CU_EVENT_DEFAULT as u32))?;
        }
        Ok(timer)
    }

    /// Milliseconds until the device is done with a few calls, one after the other; infinite if the driver does not tell. Time in which the device waits
    /// for the host to launch counts too.
    ///
    /// # Errors
    /// The first of a call.
    pub(crate) fn time<E>(&self, call: impl Fn() -> Result<(), E>) -> Result<f32, E> {
        let [start, end] = self.events;
        // What was queued before would count too.
        let begun = self.queue.synchronize().and_then(|()| driven!(cuEventRecord(start, self.queue.stream())));
        (0..CALLS).try_for_each(|_| call())?;
        let mut time = f32::INFINITY;
        let timed = begun
            .and_then(|()| driven!(cuEventRecord(end, self.queue.stream())))
            .and_then(|()| driven!(cuEventSynchronize(end)))
            .and_then(|()| driven!(cuEventElapsedTime(&mut time, start, end)));
        Ok(timed.map_or(f32::INFINITY, |()| time))
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        for event in self.events.into_iter().filter(|event| !event.is_null()) {
            // Nothing can be done about a failure.
            let _ = driven!(cuEventDestroy_v2(event));
        }
    }
}
