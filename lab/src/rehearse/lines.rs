//! Lines of the forward pass for allocations of the backward pass, which have none of their own.

use lab_traces::snapshot::{Action, AddedFrame, Snapshot};

use super::answers::Lines;

/// Gives allocations that a node of the backward pass made the line whose operator made the node. `made` is the number of allocations on the card
/// until the snapshot.
pub(super) fn add(snapshot: &mut Snapshot, device: usize, lines: &Lines, made: u64) {
    let mut marks: Vec<(u64, usize, &str)> =
        lines.marks.iter().filter(|mark| mark.0 == device).map(|mark| (mark.1, mark.2, mark.3.as_str())).collect();
    if marks.is_empty() {
        return;
    }
    marks.sort_by_key(|mark| mark.0);
    let in_trace = snapshot.trace(device).iter().filter(|event| event.action == Action::Alloc).count() as u64;
    // The trace may lack its first entries.
    let before = made.saturating_sub(in_trace);
    let last = marks.len() - 1;
    let stack_of = |number: u64| {
        let number = before.saturating_add(number);
        // The last node that started until then; of several at the same number, the last one.
        let at = marks.partition_point(|mark| mark.0 <= number).checked_sub(1)?;
        // After the last node nothing bounds its time.
        (at < last || marks[last].0 == number).then_some(at as u64)
    };
    let frames = |at: u64| -> Vec<AddedFrame> {
        let (_, place, node) = marks[at as usize];
        let node = format!("torch::autograd::generated::{node}::apply()");
        let place = lines.places.get(place).map_or(&[][..], Vec::as_slice);
        std::iter::once(("??".to_string(), 0, node)).chain(place.iter().cloned()).collect()
    };
    snapshot.add_stacks(device, stack_of, frames);
}
