//! Collection of old segments, before the limit on memory is reached.

use super::block::LARGE;
use super::{Caching, Driver};

impl Caching {
    /// Runs when the allocator holds more than the threshold's share of the allowed memory. It gives back the large
    /// segments that have been free for longest, measured in searches, until the excess is gone. One pass gives back
    /// everything of at least the average age; passes repeat while they find something.
    pub(super) fn collect_garbage(&mut self, driver: Driver<'_>) {
        let Some(allowed) = self.allowed_bytes else { return };
        let threshold = (self.config.garbage_collection_threshold * allowed as f64) as u64;
        if self.taken_bytes <= threshold {
            return;
        }
        let target = self.taken_bytes - threshold;
        let pool = &self.pools[LARGE as usize];
        let whole = pool.free.blocks().map(|index| &self.nodes[index]).filter(|node| !node.is_split());
        let (mut total_age, mut count) = whole.fold((0, 0u64), |(sum, n), node| (sum + pool.age(node), n + 1));
        let (mut reclaimed, mut found) = (0, true);
        while reclaimed < target && found && count > 0 {
            let average = total_age as f64 / count as f64;
            found = false;
            let pass: Vec<u32> = self.pools[LARGE as usize].free.blocks().collect();
            for index in pass {
                let node = &self.nodes[index];
                let age = self.pools[LARGE as usize].age(node);
                if node.is_split() || node.expandable || (age as f64) < average {
                    continue;
                }
                found = true;
                reclaimed += node.bytes;
                total_age -= age;
                count -= 1;
                self.release_segment(index, driver);
            }
        }
    }
}
