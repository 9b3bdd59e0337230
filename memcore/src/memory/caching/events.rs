//! Events recorded on streams that are not yet complete, and the blocks that wait for them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::block::Streams;
use crate::memory::Stream;

/// Recorded streams and events that are not yet complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    /// Streams that use a block, by block.
    pub(super) uses: FxHashMap<u32, Streams>,
    /// The streams of `uses` that were added during a graph capture.
    pub(super) uses_in_capture: FxHashMap<u32, Streams>,
    /// Blocks freed during a graph capture.
    pub(super) deferred: Vec<u32>,
    /// One queue per stream with outstanding events, in order of stream. (PyTorch's order is that of a hash table; this
    /// one matches the recordings.)
    pub(super) queues: Vec<Queue>,
    recorded: u64,
    /// Number of the last complete event of all streams.
    completed: u64,
    holds: bool,
}

/// The events of one stream, oldest first, each with the block that waits for it.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    stream: Stream,
    /// Number of the last complete event of this stream.
    pub(super) completed: u64,
    pub(super) entries: VecDeque<(u64, u32)>,
}

impl Events {
    pub(super) fn hold(&mut self) {
        self.holds = true;
        self.completed = self.recorded;
    }

    pub(super) fn complete(&mut self) {
        self.completed = self.recorded;
    }

    pub(super) fn defer(&mut self, index: u32) {
        self.deferred.push(index);
    }

    pub(super) fn push(&mut self, stream: Stream, index: u32) {
        self.recorded += 1;
        let entry = (self.recorded, index);
        match self.queues.binary_search_by_key(&stream, |queue| queue.stream) {
            Ok(at) => self.queues[at].entries.push_back(entry),
            Err(at) => self.queues.insert(at, Queue { stream, completed: 0, entries: VecDeque::from([entry]) }),
        }
    }

    /// Removes and returns the next block of a queue, if its event is complete.
    pub(super) fn pop_complete(&mut self, queue: usize) -> Option<u32> {
        let (holds, completed) = (self.holds, self.completed);
        let queue = &mut self.queues[queue];
        let is_complete = |event: u64| !holds || event <= completed.max(queue.completed);
        let &(event, index) = queue.entries.front()?;
        if !is_complete(event) {
            return None;
        }
        queue.entries.pop_front();
        Some(index)
    }

    pub(super) fn drop_empty(&mut self) {
        self.queues.retain(|queue| !queue.entries.is_empty());
    }
}
