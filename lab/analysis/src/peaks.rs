//! The local peaks of a run: its peak and the next ones below it, from the history of events.
//!
//! A change that lowers the peak helps only down to the next peak; that is why they are shown together.

use memcore::memory::{AllocId, Category, CategoryBytes, Event, Ledger, Origin};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A moment at which more was allocated than some time before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPeak {
    /// Bytes allocated then.
    pub allocated_bytes: u64,
    /// Phase of the step.
    pub phase: String,
    /// Operator whose allocation reached it, with the autograd node that it ran in.
    pub op: String,
    /// Module that was running; empty outside of any.
    pub scope: String,
    /// Category that held most.
    #[serde(rename = "mostly")]
    pub dominant_category: String,
    /// Bytes of that category.
    #[serde(rename = "mostly_bytes")]
    pub dominant_bytes: u64,
}

/// How far memory has to fall before the next rise counts as another peak, as a share of the whole peak.
const PROMINENCE: f64 = 0.01;

/// A peak before its names are looked up.
#[derive(Clone, Copy)]
struct Moment {
    bytes: u64,
    origin: Origin,
    by_category: CategoryBytes,
}

/// Returns the highest local peaks of a history, highest first. If the same operator reaches several in the same phase and kind of module (step after
/// step, layer after layer), only the highest counts. Empty if the history is off.
pub fn local_peaks(ledger: &Ledger, count: usize) -> Vec<LocalPeak> {
    let prominence = (ledger.usage().peak_bytes() as f64 * PROMINENCE) as u64;
    let mut highest: FxHashMap<Origin, Moment> = FxHashMap::default();
    for moment in peaks_of(ledger.history(), prominence.max(1)) {
        let best = highest.entry(moment.origin).or_insert(moment);
        if moment.bytes > best.bytes {
            *best = moment;
        }
    }
    let mut found: Vec<LocalPeak> = highest.values().map(|moment| named(ledger, moment)).collect();
    found.sort_by(|a, b| b.allocated_bytes.cmp(&a.allocated_bytes).then_with(|| a.scope.cmp(&b.scope)));
    let mut kept: Vec<LocalPeak> = Vec::new();
    for peak in found {
        let is_like = |other: &LocalPeak| {
            (&peak.phase, &peak.op) == (&other.phase, &other.op) && kind(&peak.scope) == kind(&other.scope)
        };
        if !kept.iter().any(is_like) {
            kept.push(peak);
        }
    }
    kept.truncate(count);
    kept
}

/// Path of a module without the numbers of layers: `h.*.mlp`.
fn kind(scope: &str) -> String {
    let parts = scope.split('.').map(|part| if part.bytes().all(|b| b.is_ascii_digit()) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

fn named(ledger: &Ledger, moment: &Moment) -> LocalPeak {
    let Origin { scope, op, node, phase } = moment.origin;
    let dominant =
        Category::ALL.into_iter().max_by_key(|c| moment.by_category[*c as usize]).unwrap_or(Category::Temporary);
    LocalPeak {
        allocated_bytes: moment.bytes,
        phase: ledger.phase_name(phase).to_string(),
        op: memcore::context::label(node, op),
        scope: ledger.scope_path(scope).to_string(),
        dominant_category: dominant.name().replace('_', " "),
        dominant_bytes: moment.by_category[dominant as usize],
    }
}

/// Returns every moment that is preceded by a rise of at least `prominence` and followed by a fall of at least as much.
fn peaks_of(events: &[Event], prominence: u64) -> Vec<Moment> {
    let mut live: FxHashMap<AllocId, (u64, Category)> = FxHashMap::default();
    let mut now = Moment { bytes: 0, origin: Origin::default(), by_category: CategoryBytes::default() };
    let (mut top, mut valley, mut climbing) = (now, 0u64, true);
    let mut found = Vec::new();
    for event in events {
        match *event {
            Event::Alloc { id, bytes, category, origin, .. } => {
                live.insert(id, (bytes, category));
                now.bytes += bytes;
                now.by_category[category as usize] += bytes;
                now.origin = origin;
                if climbing && now.bytes > top.bytes {
                    top = now;
                } else if !climbing && now.bytes >= valley + prominence {
                    (top, climbing) = (now, true);
                }
            }
            Event::Free { id, .. } => {
                let Some((bytes, category)) = live.remove(&id) else { continue };
                now.bytes -= bytes;
                now.by_category[category as usize] -= bytes;
                if climbing && now.bytes + prominence <= top.bytes {
                    found.push(top);
                    (valley, climbing) = (now.bytes, false);
                }
                valley = valley.min(now.bytes);
            }
            Event::Retag { id, to } => {
                let Some((bytes, category)) = live.get_mut(&id) else { continue };
                now.by_category[*category as usize] -= *bytes;
                now.by_category[to as usize] += *bytes;
                *category = to;
            }
            _ => {}
        }
    }
    if climbing && top.bytes > 0 {
        found.push(top);
    }
    found
}

#[cfg(test)]
mod tests {
    use memcore::memory::{ScopeId, Stream};

    use super::*;

    fn alloc(id: u64, bytes: u64, scope: ScopeId, op: &'static str) -> Event {
        let origin = Origin { scope, op, ..Origin::default() };
        let (id, stream, category) = (AllocId(id), Stream::DEFAULT, Category::Activation);
        Event::Alloc { id, requested_bytes: bytes, bytes, address: 0, stream, category, origin }
    }

    fn free(id: u64) -> Event {
        Event::Free { id: AllocId(id), origin: Origin::default() }
    }

    #[test]
    fn local_peaks_are_what_lies_between_two_falls_and_the_same_place_counts_once() {
        let mut ledger = Ledger::new();
        ledger.set_history(true);
        let (a, b, other) = (ledger.scope("a"), ledger.scope("b.0"), ledger.scope("b.1"));
        let events = [
            alloc(0, 1000, a, "mm"),
            alloc(1, 5, a, "add"), // highest: 1005, the fall of 5 below is not a valley
            free(1),
            alloc(2, 3, b, "relu"),
            free(2),
            free(0), // 0
            alloc(3, 700, b, "mm"),
            free(3),
            alloc(4, 800, b, "mm"), // the same place, higher
            free(4),
            alloc(5, 600, other, "mm"), // the same in another layer
            free(5),
        ];
        events.into_iter().for_each(|event| ledger.record(event));
        let found = local_peaks(&ledger, 9);
        let seen: Vec<(u64, &str, &str)> =
            found.iter().map(|s| (s.allocated_bytes, s.scope.as_str(), s.op.as_str())).collect();
        assert_eq!(seen, [(1005, "a", "add"), (800, "b.0", "mm")]);
        assert_eq!((found[0].dominant_category.as_str(), found[0].dominant_bytes), ("activation", 1005));
        assert_eq!(local_peaks(&ledger, 1).len(), 1);
    }

    #[test]
    fn without_a_history_there_are_none() {
        assert!(local_peaks(&Ledger::new(), 3).is_empty());
    }
}
