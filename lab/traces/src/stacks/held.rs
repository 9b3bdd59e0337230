//! Holders of memory at a moment, by line of the program.

use rustc_hash::FxHashMap;

use super::guess::Role;
use super::lives::Life;
use super::phase::Phase;
use super::place::{Line, Place};
use crate::snapshot::{Snapshot, StackId};

/// Memory of one line for one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRow {
    /// Place of the allocation, with the operator that has most.
    pub place: Place,
    /// Purpose.
    pub role: Role,
    /// Requested bytes.
    pub bytes: u64,
    /// Number of allocations.
    pub allocations: u64,
    /// Operators with their bytes, largest first.
    pub operators: Vec<(String, u64)>,
    /// True if it existed before the recording began.
    pub before: bool,
    /// Stack of its largest part.
    pub stack: StackId,
}

/// Key of a sum: stack, purpose, whether before the recording, and part of the program.
type Part = (StackId, Role, bool, Option<Phase>);

/// Returns the memory live at a moment with its purpose: rows by line and purpose, largest first. Stacks that `wanted` refuses are left out.
pub fn held_at<'a>(
    snapshot: &Snapshot,
    live: impl Iterator<Item = (&'a Life, Role, Option<Phase>)>,
    wanted: &dyn Fn(StackId) -> bool,
) -> Vec<HeldRow> {
    let mut by_stack: FxHashMap<Part, (u64, u64)> = FxHashMap::default();
    for (life, role, phase) in live {
        // For a stack without frames, the part of the program is all that is known.
        let phase = phase.filter(|_| !snapshot.has_stack(life.stack));
        let sum = by_stack.entry((life.stack, role, life.made.is_none(), phase)).or_default();
        *sum = (sum.0.saturating_add(life.bytes), sum.1 + 1);
    }
    let mut parts: Vec<_> = by_stack.into_iter().filter(|((stack, ..), _)| wanted(*stack)).collect();
    // Largest first, so that a row's stack is that of its largest part.
    parts.sort_unstable_by_key(|((stack, role, ..), (bytes, _))| (std::cmp::Reverse(*bytes), *stack, *role));
    let mut rows: Vec<HeldRow> = Vec::new();
    let mut at: FxHashMap<(String, Role, bool), usize> = FxHashMap::default();
    for ((stack, role, before, phase), (bytes, allocations)) in parts {
        let mut place = Place::from_stack(snapshot, stack);
        if phase == Some(Phase::Backward) {
            place.native = Some("the backward pass".into());
        }
        let row = *at.entry((line_of(&place), role, before)).or_insert_with(|| {
            let (place, operators) = (place.clone(), Vec::new());
            rows.push(HeldRow { place, role, bytes: 0, allocations: 0, operators, before, stack });
            rows.len() - 1
        });
        let row = &mut rows[row];
        row.bytes = row.bytes.saturating_add(bytes);
        row.allocations += allocations;
        if let Some(operator) = place.operator {
            match row.operators.iter_mut().find(|(known, _)| *known == operator) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => row.operators.push((operator, bytes)),
            }
        }
    }
    for row in &mut rows {
        row.operators.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}

/// Returns the key of a row: the program's line and the library's line that it called; without a line, whatever else is known.
fn line_of(place: &Place) -> String {
    let line = |line: &Line| format!("{}:{} {}", line.file, line.line, line.function);
    match (&place.own, &place.library) {
        (Some(own), None) => line(own),
        (Some(own), Some(library)) => line(own) + &line(library),
        (None, _) => place.in_words(),
    }
}
