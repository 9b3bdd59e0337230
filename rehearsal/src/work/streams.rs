//! Streams and events outside captures.

use std::ffi::{c_int, c_uint};

use super::{Event, Stream, Work};
use crate::answer::{Answer, Code};
use crate::settings::settings;
use crate::{handles, log};

/// Least and greatest priority of streams.
pub(crate) const PRIORITIES: (c_int, c_int) = (0, -5);

/// Tells that a program of several streams asked about work which a card may not have done yet.
const LATE: &str = "late_events";

/// Flag of an event without times.
const NO_TIMING: c_uint = 2;

impl Work {
    /// Makes a stream. Priorities beyond the bounds are clamped.
    pub(crate) fn create_stream(&mut self, card: usize, flags: c_uint, priority: c_int) -> usize {
        let handle = handles::new();
        let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
        self.streams.insert(handle, Stream { card, flags, priority, ..Stream::default() });
        handle
    }

    /// Destroys a stream, and breaks its capture.
    pub(crate) fn destroy_stream(&mut self, handle: usize) -> Answer {
        let stream = self.streams.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        if let Some(capture) = stream.capture.and_then(|id| self.captures.get_mut(&id)) {
            capture.is_broken = true;
        }
        Ok(())
    }

    pub(crate) fn create_event(&mut self, flags: c_uint) -> usize {
        let handle = handles::new();
        self.events.insert(handle, Event { flags, ..Event::default() });
        handle
    }

    pub(crate) fn destroy_event(&mut self, handle: usize) -> Answer {
        self.events.remove(&handle).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    /// Records an event on a stream.
    pub(crate) fn record(&mut self, event: usize, stream: usize) -> Answer {
        let stream = self.stream(stream)?.clone();
        let captured = stream.capture.map(|capture| (capture, stream.tail));
        self.event(event)?.captured.clone_from(&captured);
        if captured.is_some() {
            return Ok(());
        }
        self.recordings += 1;
        if !settings().late_events {
            self.complete = self.recordings;
        }
        let number = self.recordings;
        self.event(event)?.recorded = Some(number);
        Ok(())
    }

    /// Checks whether the recorded work is complete.
    pub(crate) fn query_event(&mut self, handle: usize) -> Answer {
        let (complete, waited, several) = (self.complete, self.waited, self.has_several_streams());
        let event = self.event(handle)?;
        if event.captured.is_some() {
            return Err(Code::CAPTURED_EVENT);
        }
        let is_complete = event.recorded.is_none_or(|number| number <= complete);
        if several && event.recorded.is_some_and(|number| number > waited) {
            log::once(LATE, "");
        }
        if is_complete { Ok(()) } else { Err(Code::NOT_READY) }
    }

    /// Waits until the recorded work is complete.
    pub(crate) fn wait_for_event(&mut self, handle: usize) -> Answer {
        let event = self.event(handle)?;
        if event.captured.is_some() {
            return Err(Code::CAPTURED_EVENT);
        }
        let number = event.recorded.unwrap_or_default();
        self.complete = self.complete.max(number);
        self.waited = self.waited.max(number);
        Ok(())
    }

    /// True if the program made a stream, or used the default stream of a thread.
    fn has_several_streams(&self) -> bool {
        self.streams.keys().any(|handle| *handle != 0)
    }

    /// Waits for everything.
    pub(crate) fn complete_all(&mut self) {
        self.complete = self.recordings;
        self.waited = self.recordings;
    }

    /// Milliseconds between two events: next to nothing, but never 0, because programs divide by it.
    pub(crate) fn elapsed(&mut self, start: usize, end: usize) -> Answer<f32> {
        for handle in [start, end] {
            let event = self.event(handle)?;
            if event.flags & NO_TIMING != 0 || event.recorded.is_none() {
                return Err(Code::INVALID_HANDLE);
            }
            self.query_event(handle)?;
        }
        Ok(0.001)
    }
}
