//! The state of memory: a fold over its history.

use rustc_hash::FxHashMap;

use super::event::{AllocId, Event, Origin, PhaseId, ScopeId};
use crate::account::{Category, CategoryBytes};

/// An allocation that has not been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Bytes that the client asked for.
    pub requested_bytes: u64,
    /// Bytes of the block that it got.
    pub bytes: u64,
    /// Virtual address.
    pub address: u64,
    /// Role of the allocation.
    pub category: Category,
    /// The code that allocated it.
    pub origin: Origin,
}

/// The composition of memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeakComposition {
    /// Allocated bytes in all.
    pub allocated_bytes: u64,
    /// Bytes that clients had asked for.
    pub requested_bytes: u64,
    /// By category; sums to `allocated_bytes`.
    pub by_category: CategoryBytes,
    /// By scope (indexed by [`ScopeId`]) and category; sums to `by_category`.
    pub by_scope: Vec<CategoryBytes>,
    /// The code whose allocation reached the peak.
    pub origin: Origin,
}

/// Holders of memory, now and at the peak. [`Usage::apply`] makes it from events alone, so that [`Usage::replay`] of a
/// recording gives exactly the same value, and a report needs no device.
///
/// The cost of an event does not grow with the number of scopes or live blocks: the composition at the peak is copied
/// only at the first free after the peak, and then only the rows that changed since the last copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    live: FxHashMap<AllocId, Live>,
    by_category: CategoryBytes,
    by_scope: Vec<ScopeRow>,
    requested_bytes: u64,
    allocated_bytes: u64,
    peak_bytes: u64,
    phase_peak_bytes: u64,
    phase: PhaseId,
    n_alloc: u64,
    n_free: u64,
    n_oom: u64,
    reserved_bytes: u64,
    at_peak: PeakComposition,
    /// True if the current composition is that of the peak and has not been copied yet.
    peak_pending: bool,
    /// Rows of `by_scope` that may differ from those in `at_peak`.
    changed: Vec<ScopeId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScopeRow {
    bytes: CategoryBytes,
    changed: bool,
}

impl Usage {
    /// Folds these events, starting from nothing.
    pub fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut usage = Self::default();
        events.into_iter().for_each(|event| usage.apply(event));
        usage
    }

    /// Applies one event. A `Free` or `Retag` of an allocation that is not live changes nothing.
    pub fn apply(&mut self, event: &Event) {
        match *event {
            Event::Alloc { id, requested_bytes, bytes, address, category, origin, .. } => {
                self.alloc(id, Live { requested_bytes, bytes, address, category, origin });
            }
            Event::Free { id, .. } => self.free(id),
            Event::Retag { id, to } => self.retag(id, to),
            Event::Phase { phase } => {
                self.phase = phase;
                self.phase_peak_bytes = self.allocated_bytes;
            }
            Event::ResetPhasePeak => self.phase_peak_bytes = self.allocated_bytes,
            Event::ResetPeak => {
                self.peak_bytes = self.allocated_bytes;
                self.phase_peak_bytes = self.allocated_bytes;
                self.at_peak.origin = Origin { phase: self.phase, ..Origin::default() };
                self.peak_pending = true;
            }
            Event::Oom { .. } => self.n_oom += 1,
            Event::SegmentAlloc { bytes, .. } | Event::SegmentMap { bytes, .. } => self.reserved_bytes += bytes,
            Event::SegmentFree { bytes, .. } | Event::SegmentUnmap { bytes, .. } => {
                self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
            }
            Event::Refused { .. } | Event::ExpandableUnsupported => {}
        }
    }

    fn alloc(&mut self, id: AllocId, live: Live) {
        self.n_alloc += 1;
        if let Some(previous) = self.live.insert(id, live) {
            debug_assert!(false, "{id:?} is live already");
            self.requested_bytes -= previous.requested_bytes;
            self.allocated_bytes -= previous.bytes;
            self.take(previous.origin.scope, previous.category, previous.bytes);
        }
        self.requested_bytes += live.requested_bytes;
        self.allocated_bytes += live.bytes;
        self.give(live.origin.scope, live.category, live.bytes);
        self.phase_peak_bytes = self.phase_peak_bytes.max(self.allocated_bytes);
        if self.allocated_bytes > self.peak_bytes {
            self.peak_bytes = self.allocated_bytes;
            self.at_peak.origin = live.origin;
            self.peak_pending = true;
        }
    }

    fn free(&mut self, id: AllocId) {
        let Some(live) = self.live.remove(&id) else { return };
        self.settle_peak();
        self.n_free += 1;
        self.requested_bytes -= live.requested_bytes;
        self.allocated_bytes -= live.bytes;
        self.take(live.origin.scope, live.category, live.bytes);
    }

    fn retag(&mut self, id: AllocId, to: Category) {
        let Some(&Live { bytes, category, origin, .. }) = self.live.get(&id) else { return };
        if category == to {
            return;
        }
        self.settle_peak();
        self.take(origin.scope, category, bytes);
        self.give(origin.scope, to, bytes);
        if let Some(live) = self.live.get_mut(&id) {
            live.category = to;
        }
    }

    fn row(&mut self, scope: ScopeId) -> &mut CategoryBytes {
        let index = scope.0 as usize;
        if index >= self.by_scope.len() {
            self.by_scope.resize(index + 1, ScopeRow::default());
        }
        let row = &mut self.by_scope[index];
        if !row.changed {
            row.changed = true;
            self.changed.push(scope);
        }
        &mut row.bytes
    }

    fn give(&mut self, scope: ScopeId, category: Category, bytes: u64) {
        self.by_category[category as usize] += bytes;
        self.row(scope)[category as usize] += bytes;
    }

    fn take(&mut self, scope: ScopeId, category: Category, bytes: u64) {
        self.by_category[category as usize] -= bytes;
        self.row(scope)[category as usize] -= bytes;
    }

    /// Copies the composition if the state is that of the peak and about to change.
    fn settle_peak(&mut self) {
        if !std::mem::take(&mut self.peak_pending) {
            return;
        }
        let at_peak = &mut self.at_peak;
        at_peak.allocated_bytes = self.allocated_bytes;
        at_peak.requested_bytes = self.requested_bytes;
        at_peak.by_category = self.by_category;
        at_peak.by_scope.resize(self.by_scope.len(), CategoryBytes::default());
        for scope in self.changed.drain(..) {
            let index = scope.0 as usize;
            self.by_scope[index].changed = false;
            at_peak.by_scope[index] = self.by_scope[index].bytes;
        }
    }

    /// Bytes that clients asked for, summed over the blocks that they hold.
    pub fn requested_bytes(&self) -> u64 {
        self.requested_bytes
    }

    /// Bytes of the blocks that clients hold.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// The most that clients held since the peak was last reset.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// The most that clients held since the phase began or its peak was last reset.
    pub(crate) fn phase_peak_bytes(&self) -> u64 {
        self.phase_peak_bytes
    }

    /// The current phase of the step.
    pub fn phase(&self) -> PhaseId {
        self.phase
    }

    /// Bytes of segments and mapped pages, by their events.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Number of allocations so far.
    pub fn n_alloc(&self) -> u64 {
        self.n_alloc
    }

    /// Number of frees so far.
    pub fn n_free(&self) -> u64 {
        self.n_free
    }

    /// Number of requests that failed for lack of memory so far.
    pub fn n_oom(&self) -> u64 {
        self.n_oom
    }

    /// Bytes that clients hold, by category; sums to [`allocated_bytes`](Self::allocated_bytes).
    pub fn by_category(&self) -> &CategoryBytes {
        &self.by_category
    }

    /// Bytes that clients hold and that were allocated in this scope itself, by category.
    pub fn in_scope(&self, scope: ScopeId) -> CategoryBytes {
        self.by_scope.get(scope.0 as usize).map_or_else(CategoryBytes::default, |row| row.bytes)
    }

    /// The scopes that hold memory.
    pub fn scopes(&self) -> impl Iterator<Item = (ScopeId, &CategoryBytes)> {
        let rows = self.by_scope.iter().enumerate().map(|(index, row)| (ScopeId(index as u32), &row.bytes));
        rows.filter(|(_, bytes)| bytes.iter().any(|&bytes| bytes > 0))
    }

    /// The composition of memory at the peak.
    pub fn at_peak(&self) -> PeakComposition {
        if !self.peak_pending {
            return self.at_peak.clone();
        }
        PeakComposition {
            allocated_bytes: self.allocated_bytes,
            requested_bytes: self.requested_bytes,
            by_category: self.by_category,
            by_scope: self.by_scope.iter().map(|row| row.bytes).collect(),
            origin: self.at_peak.origin,
        }
    }

    /// An allocation that has not been freed.
    pub fn live(&self, id: AllocId) -> Option<&Live> {
        self.live.get(&id)
    }

    /// All allocations that have not been freed, in no particular order.
    pub fn all_live(&self) -> impl Iterator<Item = (AllocId, &Live)> {
        self.live.iter().map(|(&id, live)| (id, live))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::Stream;

    #[derive(Clone, Debug)]
    enum Step {
        Alloc(u64, u8, u32),
        Free(usize),
        Retag(usize, u8),
        Phase(u32),
        ResetPeak,
        ResetPhasePeak,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u64..5000, 0u8..8, 0u32..6).prop_map(|(bytes, category, scope)| Step::Alloc(bytes, category, scope)),
            3 => any::<usize>().prop_map(Step::Free),
            2 => (any::<usize>(), 0u8..8).prop_map(|(which, category)| Step::Retag(which, category)),
            1 => (0u32..4).prop_map(Step::Phase),
            1 => Just(Step::ResetPeak),
            1 => Just(Step::ResetPhasePeak),
        ]
    }

    /// Events that a device could have sent, some of them about allocations that are already freed.
    fn events(steps: &[Step]) -> Vec<Event> {
        let mut next = 0;
        let mut event = |step: &Step| match *step {
            Step::Alloc(requested_bytes, category, scope) => {
                let id = AllocId(next);
                next += 1;
                Event::Alloc {
                    id,
                    requested_bytes,
                    bytes: requested_bytes.next_multiple_of(512),
                    address: 512 * next,
                    stream: Stream::DEFAULT,
                    category: Category::ALL[category as usize],
                    origin: Origin { scope: ScopeId(scope), op: "mm", ..Origin::default() },
                }
            }
            Step::Free(which) => Event::Free { id: AllocId(which as u64 % (next + 1)), origin: Origin::default() },
            Step::Retag(which, to) => {
                Event::Retag { id: AllocId(which as u64 % (next + 1)), to: Category::ALL[to as usize] }
            }
            Step::Phase(phase) => Event::Phase { phase: PhaseId(phase) },
            Step::ResetPeak => Event::ResetPeak,
            Step::ResetPhasePeak => Event::ResetPhasePeak,
        };
        steps.iter().map(&mut event).collect()
    }

    /// The same quantities by brute force: everything is summed again at every event.
    #[derive(Default)]
    struct Plain {
        live: Vec<(AllocId, Live)>,
        peak: u64,
        at_peak: CategoryBytes,
        at_peak_scopes: Vec<CategoryBytes>,
        phase_peak: u64,
    }

    impl Plain {
        fn apply(&mut self, event: &Event) {
            let mut new_peak = false;
            match *event {
                Event::Alloc { id, requested_bytes, bytes, address, category, origin, .. } => {
                    self.live.push((id, Live { requested_bytes, bytes, address, category, origin }));
                }
                Event::Free { id, .. } => self.live.retain(|(other, _)| *other != id),
                Event::Retag { id, to } => {
                    self.live.iter_mut().filter(|(other, _)| *other == id).for_each(|(_, live)| live.category = to);
                }
                Event::ResetPeak => {
                    (self.peak, self.phase_peak, new_peak) = (self.allocated(), self.allocated(), true);
                }
                Event::Phase { .. } | Event::ResetPhasePeak => self.phase_peak = self.allocated(),
                _ => {}
            }
            self.phase_peak = self.phase_peak.max(self.allocated());
            if self.allocated() > self.peak || new_peak {
                self.peak = self.allocated();
                self.at_peak = self.by_category(|_| true);
                self.at_peak_scopes =
                    (0..6).map(|scope| self.by_category(|live| live.origin.scope == ScopeId(scope))).collect();
            }
        }
        fn allocated(&self) -> u64 {
            self.live.iter().map(|(_, live)| live.bytes).sum()
        }
        fn by_category(&self, counts: impl Fn(&Live) -> bool) -> CategoryBytes {
            let mut sums = CategoryBytes::default();
            for (_, live) in self.live.iter().filter(|(_, live)| counts(live)) {
                sums[live.category as usize] += live.bytes;
            }
            sums
        }
    }

    proptest! {
        #[test]
        fn every_total_agrees_with_brute_force_at_every_event(steps in proptest::collection::vec(step(), 0..200)) {
            let events = events(&steps);
            let (mut usage, mut plain) = (Usage::default(), Plain::default());
            for event in &events {
                usage.apply(event);
                plain.apply(event);
                prop_assert_eq!(usage.allocated_bytes(), plain.allocated());
                prop_assert_eq!(usage.by_category().iter().sum::<u64>(), usage.allocated_bytes());
                prop_assert_eq!(usage.by_category(), &plain.by_category(|_| true));
                let scopes: u64 = usage.scopes().flat_map(|(_, row)| row).sum();
                prop_assert_eq!(scopes, usage.allocated_bytes());
                prop_assert_eq!(usage.peak_bytes(), plain.peak);
                prop_assert_eq!(usage.phase_peak_bytes(), plain.phase_peak);
                let at_peak = usage.at_peak();
                prop_assert_eq!(at_peak.allocated_bytes, plain.peak);
                prop_assert_eq!(at_peak.by_category, plain.at_peak);
                for scope in 0..6 {
                    let row = at_peak.by_scope.get(scope).copied().unwrap_or_default();
                    prop_assert_eq!(row, plain.at_peak_scopes.get(scope).copied().unwrap_or_default());
                }
            }
            prop_assert_eq!(Usage::replay(&events), usage);
        }
    }

    #[test]
    fn the_peak_names_the_allocation_that_made_it() {
        let alloc = |id, bytes, op| Event::Alloc {
            id: AllocId(id),
            requested_bytes: bytes,
            bytes,
            address: 0,
            stream: Stream::DEFAULT,
            category: Category::Temporary,
            origin: Origin { op, phase: PhaseId(id as u32), ..Origin::default() },
        };
        let free = Event::Free { id: AllocId(0), origin: Origin::default() };
        let usage = Usage::replay(&[alloc(0, 100, "mm"), alloc(1, 50, "relu"), free, alloc(2, 99, "add")]);
        assert_eq!((usage.peak_bytes(), usage.allocated_bytes()), (150, 149));
        assert_eq!((usage.at_peak().origin.op, usage.at_peak().origin.phase), ("relu", PhaseId(1)));
    }
}
