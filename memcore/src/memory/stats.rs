//! An allocator's counters, under PyTorch's names.
//!
//! | statistic | rises | falls |
//! |---|---|---|
//! | `allocation` | a request is served (1) | `free` is called (1) |
//! | `allocated_bytes` | a request is served (block size) | `free` is called (block size) |
//! | `active`, `active_bytes` | a request is served | a free completes: at once, or after the work of other streams |
//! | `requested_bytes` | a request is served (as asked) | a free completes |
//! | `segment` | a segment is taken (1) | a segment is given back (1); mapping pages counts nothing |
//! | `reserved_bytes` | a segment is taken, pages are mapped | the reverse |
//! | `inactive_split`, `inactive_split_bytes` | a free block appears that shares its segment with others | it goes |
//!
//! Each event counts in `all` and in the pool that it belongs to. The flattened names and their order are those of
//! `torch.cuda.memory_stats()`.

/// One counter. The sum of its decreases is not stored but computed from the rest: every operation changes some twenty
/// counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The current value.
    pub current: u64,
    /// The largest `current` since the last reset of the peaks.
    pub peak: u64,
    /// Sum of all increases since the last reset of the accumulated counts.
    pub allocated: u64,
    /// `current` at that reset, plus the parts of later decreases that would have gone below 0.
    base: u64,
}

impl Stat {
    #[inline]
    pub(super) fn increase(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    #[inline]
    pub(super) fn decrease(&mut self, amount: u64) {
        self.current -= amount;
    }

    /// Decreases the counter, at most to 0. For counts of oversize blocks: they would fall below 0 if the size is
    /// changed while such blocks exist.
    pub(super) fn decrease_to_zero(&mut self, amount: u64) {
        let fallen = amount.min(self.current);
        self.current -= fallen;
        self.base += amount - fallen;
    }

    /// Sum of all decreases since the last reset of the accumulated counts.
    #[inline]
    pub fn freed(&self) -> u64 {
        self.base + self.allocated - self.current
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.base = self.current;
    }
}

/// One counter for all blocks and for each of the two pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatArray {
    /// Both pools.
    pub all: Stat,
    /// Requests up to 1 MiB.
    pub small: Stat,
    /// Larger requests.
    pub large: Stat,
}

impl StatArray {
    #[inline]
    pub(super) fn increase(&mut self, small: bool, amount: u64) {
        self.all.increase(amount);
        self.pool(small).increase(amount);
    }

    #[inline]
    pub(super) fn decrease(&mut self, small: bool, amount: u64) {
        self.all.decrease(amount);
        self.pool(small).decrease(amount);
    }

    #[inline]
    fn pool(&mut self, small: bool) -> &mut Stat {
        if small { &mut self.small } else { &mut self.large }
    }

    fn each(&mut self) -> [&mut Stat; 3] {
        [&mut self.all, &mut self.small, &mut self.large]
    }
}

/// All counters of an allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that clients hold.
    pub allocation: StatArray,
    /// Segments taken from the driver; expandable ones are not counted.
    pub segment: StatArray,
    /// Blocks that clients hold or whose free waits for other streams.
    pub active: StatArray,
    /// Free blocks that share their segment with others, so that it cannot be given back.
    pub inactive_split: StatArray,
    /// Bytes of `allocation`.
    pub allocated_bytes: StatArray,
    /// Bytes taken from the driver.
    pub reserved_bytes: StatArray,
    /// Bytes of `active`.
    pub active_bytes: StatArray,
    /// Bytes of `inactive_split`.
    pub inactive_split_bytes: StatArray,
    /// Bytes that clients asked for, summed over the `active` blocks.
    pub requested_bytes: StatArray,
    /// Served blocks of at least the size that is never split.
    pub oversize_allocations: Stat,
    /// Segments of at least that size.
    pub oversize_segments: Stat,
    /// Number of times that everything cached was given back before another attempt.
    pub num_alloc_retries: u64,
    /// Requests that failed.
    pub num_ooms: u64,
    /// Requests refused without asking the driver.
    pub num_oom_rejections: u64,
    /// Number of times that the allocator waited for all streams.
    pub num_sync_all_streams: u64,
    /// Successful requests to the driver: segments and mappings.
    pub num_device_alloc: u64,
    /// Segments and mappings given back.
    pub num_device_free: u64,
    /// The size above which blocks are not split, as configured at construction; `None`: no limit.
    pub max_split_size_bytes: Option<u64>,
    /// Bytes reserved by each private pool, by its id; only if the followed release counts them.
    pub reserved_bytes_by_private_pools: Vec<((u64, u64), Stat)>,
    /// True if `num_oom_rejections` and `reserved_bytes_by_private_pools` are reported.
    pub(super) newer_names: bool,
}

impl Stats {
    /// The arrays with their names, in the order of PyTorch's source.
    pub fn arrays(&self) -> [(&'static str, &StatArray); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    fn arrays_mut(&mut self) -> [&mut StatArray; 9] {
        [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ]
    }

    /// The counters as `torch.cuda.memory_stats()` names and sorts them: `allocated_bytes.all.current` and so on.
    pub fn flatten(&self) -> Vec<(String, i64)> {
        let mut out = Vec::with_capacity(128);
        let mut push = |name: String, value: u64| out.push((name, value as i64));
        let mut stat = |prefix: &str, stat: &Stat| {
            push(format!("{prefix}.current"), stat.current);
            push(format!("{prefix}.peak"), stat.peak);
            push(format!("{prefix}.allocated"), stat.allocated);
            push(format!("{prefix}.freed"), stat.freed());
        };
        for (name, array) in self.arrays() {
            stat(&format!("{name}.all"), &array.all);
            stat(&format!("{name}.small_pool"), &array.small);
            stat(&format!("{name}.large_pool"), &array.large);
        }
        stat("oversize_allocations", &self.oversize_allocations);
        stat("oversize_segments", &self.oversize_segments);
        for ((a, b), pool) in &self.reserved_bytes_by_private_pools {
            stat(&format!("reserved_bytes_by_private_pools.{a}_{b}"), pool);
        }
        for (name, value) in [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
        ] {
            push(name.into(), value);
        }
        if self.newer_names {
            push("num_oom_rejections".into(), self.num_oom_rejections);
        }
        out.push(("max_split_size".into(), self.max_split_size_bytes.map_or(-1, |bytes| bytes as i64)));
        out.sort_unstable();
        out
    }

    pub(super) fn reset_peak(&mut self) {
        self.arrays_mut().into_iter().flat_map(StatArray::each).for_each(Stat::reset_peak);
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
        self.reserved_bytes_by_private_pools.iter_mut().for_each(|(_, stat)| stat.reset_peak());
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.arrays_mut().into_iter().flat_map(StatArray::each).for_each(Stat::reset_accumulated);
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.reserved_bytes_by_private_pools.iter_mut().for_each(|(_, stat)| stat.reset_accumulated());
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_oom_rejections = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }

    /// Counts a served request.
    #[inline]
    pub(super) fn served(&mut self, small: bool, block_bytes: u64, requested_bytes: u64) {
        self.allocation.increase(small, 1);
        self.allocated_bytes.increase(small, block_bytes);
        self.active.increase(small, 1);
        self.active_bytes.increase(small, block_bytes);
        self.requested_bytes.increase(small, requested_bytes);
    }

    /// Counts a call of `free`.
    #[inline]
    pub(super) fn free_requested(&mut self, small: bool, block_bytes: u64) {
        self.allocation.decrease(small, 1);
        self.allocated_bytes.decrease(small, block_bytes);
    }

    /// Counts a completed free.
    #[inline]
    pub(super) fn free_completed(&mut self, small: bool, block_bytes: u64, requested_bytes: u64) {
        self.active.decrease(small, 1);
        self.active_bytes.decrease(small, block_bytes);
        self.requested_bytes.decrease(small, requested_bytes);
    }

    /// Counts a segment taken from the driver.
    pub(super) fn segment_taken(&mut self, small: bool, bytes: u64) {
        self.segment.increase(small, 1);
        self.reserved_bytes.increase(small, bytes);
        self.num_device_alloc += 1;
    }

    /// Counts a segment given back to the driver.
    pub(super) fn segment_given_back(&mut self, small: bool, bytes: u64) {
        self.segment.decrease(small, 1);
        self.reserved_bytes.decrease(small, bytes);
        self.num_device_free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_do_what_pytorch_documents() {
        let mut stats = Stats::default();
        stats.served(true, 512, 100);
        stats.served(false, 2048, 2000);
        stats.free_requested(true, 512);
        stats.free_completed(true, 512, 100);
        assert_eq!(stats.allocated_bytes.all, Stat { current: 2048, peak: 2560, allocated: 2560, base: 0 });
        assert_eq!(stats.allocated_bytes.all.freed(), 512);
        stats.reset_peak();
        assert_eq!(stats.allocated_bytes.all.peak, 2048);
        stats.reset_accumulated();
        assert_eq!(stats.allocated_bytes.all, Stat { current: 2048, peak: 2048, allocated: 0, base: 2048 });
        assert_eq!(stats.allocated_bytes.all.freed(), 0);
        stats.free_requested(false, 2048);
        assert_eq!(stats.allocated_bytes.all.freed(), 2048);
    }

    #[test]
    fn flattened_names_are_sorted() {
        let flat = Stats { max_split_size_bytes: Some(7), ..Stats::default() }.flatten();
        assert!(flat.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(flat.len(), 9 * 3 * 4 + 2 * 4 + 5 + 1);
        assert!(flat.contains(&("max_split_size".into(), 7)));
    }
}
