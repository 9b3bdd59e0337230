//! Work of other streams that a free must wait for.
//!
//! A client tells which streams use its block. When it frees the block, an event is recorded on each of them. The block
//! stays active until all events are complete; the allocator checks that when it is next asked for memory.
//!
//! Here work completes at once, unless a replay holds it back. Completion is still only *noticed* at the next request:
//! that delay is part of PyTorch's behaviour.

use super::Caching;
use super::block::Streams;
use crate::memory::Stream;

impl Caching {
    /// Notes that `stream` uses a block. Its own stream needs no note, and a second note changes nothing.
    pub(super) fn record(&mut self, index: u32, stream: Stream) {
        let captures = self.captures();
        let Some(node) = self.nodes.get(index).filter(|node| node.allocated) else { return };
        if node.stream == stream {
            return;
        }
        let add = |streams: &mut Streams| {
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        };
        self.nodes[index].recorded = true;
        add(self.events.uses.entry(index).or_default());
        if captures {
            add(self.events.uses_in_capture.entry(index).or_default());
        }
    }

    /// Makes a freed block wait for the work that its streams have queued so far.
    pub(super) fn insert_events(&mut self, index: u32) {
        let streams = self.events.uses.remove(&index).unwrap_or_default();
        let node = &mut self.nodes[index];
        node.recorded = false;
        node.events += streams.len() as u32;
        for stream in streams {
            self.events.push(stream, index);
        }
    }

    /// Records events for blocks that were freed during a graph capture. Streams that were added only during the
    /// capture do not count.
    fn flush_deferred(&mut self) {
        for index in std::mem::take(&mut self.events.deferred) {
            if let Some(added) = self.events.uses_in_capture.remove(&index)
                && let Some(streams) = self.events.uses.get_mut(&index)
            {
                streams.retain(|stream| !added.contains(stream));
            }
            self.insert_events(index);
            if self.nodes[index].events == 0 {
                self.free_block(index);
            }
        }
    }

    /// Frees the blocks whose events are complete; in each queue, up to the first event that is not.
    #[inline]
    pub(super) fn process_events(&mut self) {
        if self.events.queues.is_empty() && self.events.deferred.is_empty() {
            return;
        }
        self.flush_deferred();
        for queue in 0..self.events.queues.len() {
            while let Some(index) = self.events.pop_complete(queue) {
                self.event_completed(index);
            }
        }
        self.events.drop_empty();
    }

    /// Waits for all events, or for those of one private pool's blocks.
    pub(super) fn synchronize_events(&mut self, only: Option<u32>) {
        self.stats.num_sync_all_streams += 1;
        self.flush_deferred();
        for queue in 0..self.events.queues.len() {
            for (event, index) in std::mem::take(&mut self.events.queues[queue].entries) {
                let queue = &mut self.events.queues[queue];
                let owner = self.pools[self.nodes[index].pool as usize].owner;
                if only.is_some() && owner != only {
                    queue.entries.push_back((event, index));
                } else {
                    queue.completed = queue.completed.max(event);
                    self.event_completed(index);
                }
            }
        }
        self.events.drop_empty();
    }

    fn event_completed(&mut self, index: u32) {
        let node = &mut self.nodes[index];
        node.events -= 1;
        if node.events == 0 {
            self.free_block(index);
        }
    }
}
