//! The events that were recorded on streams and are not yet complete, and the blocks that wait for them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::block::Streams;
use crate::memory::Stream;

/// What is recorded and not yet complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    /// Streams that use a block, by block.
    pub(super) uses: FxHashMap<u32, Streams>,
    /// Of those, the ones added while a graph was captured.
    pub(super) uses_in_capture: FxHashMap<u32, Streams>,
    /// Blocks freed while a graph was captured.
    pub(super) deferred: Vec<u32>,
    /// One per stream with events outstanding, by stream. (PyTorch's order is that of a hash table; this one fits the
    /// recordings.)
    pub(super) queues: Vec<Queue>,
    recorded: u64,
    /// Events up to this one are complete.
    completed: u64,
    holds: bool,
}

/// The events of one stream, oldest first, each with the block that waits for it.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    stream: Stream,
    /// Events of this stream up to this one are complete.
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

    /// The next block of a queue whose event is complete.
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
