//! A run, separated into what depends on its size and what does not.

use memcore::Device;
use memcore::memory::{AllocId, Event};
use rustc_hash::FxHashMap;

/// An event, whatever the sizes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The next allocation.
    Alloc {
        /// Origin: operator, node, module and phase. Names are interned in the order of their first use, so that two runs of one program agree.
        op: &'static str,
        node: Option<&'static str>,
        scope: u32,
        phase: u32,
    },
    /// Frees the k-th allocation.
    Free(u32),
}

pub(super) struct Trace {
    pub(super) size: usize,
    pub(super) moves: Vec<Move>,
    /// Bytes requested by each allocation.
    pub(super) requested: Vec<u64>,
}

impl Trace {
    /// Reads the history of a device.
    pub(super) fn from_device(device: &Device, size: usize) -> Self {
        let mut known: FxHashMap<AllocId, u32> = FxHashMap::default();
        let (mut moves, mut requested) = (Vec::new(), Vec::new());
        device.with_ledger(|ledger| {
            for event in ledger.history() {
                match *event {
                    Event::Alloc { id, requested_bytes, origin, .. } => {
                        known.insert(id, requested.len() as u32);
                        let (scope, phase) = (origin.scope.0, origin.phase.0);
                        moves.push(Move::Alloc { op: origin.op, node: origin.node, scope, phase });
                        requested.push(requested_bytes);
                    }
                    Event::Free { id, .. } => moves.extend(known.get(&id).map(|&k| Move::Free(k))),
                    _ => {}
                }
            }
        });
        Self { size, moves, requested }
    }

    /// Peak of requested bytes.
    pub(super) fn requested_peak(&self) -> u64 {
        let (mut now, mut peak, mut next) = (0, 0, self.requested.iter());
        for step in &self.moves {
            match step {
                Move::Alloc { .. } => now += next.next().unwrap_or(&0),
                Move::Free(k) => now -= self.requested[*k as usize],
            }
            peak = peak.max(now);
        }
        peak
    }

    /// Whether both runs allocate and free the same tensors in the same order.
    pub(super) fn is_like(&self, other: &Trace) -> bool {
        self.moves == other.moves
    }
}
