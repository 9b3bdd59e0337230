//! Lines of the forward pass for allocations of the backward pass, which have none of their own.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use lab_traces::snapshot::{Action, AddedFrame, Snapshot};

use super::answers::Lines;

/// Name of what follows the last node of a pass.
const NO_NODE: &str = "";

/// Start of a node of the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark<'a> {
    /// Number of allocations on the card until then.
    number: u64,
    /// The place of the forward pass whose operator made the node.
    place: usize,
    node: &'a str,
}

/// Gives allocations that a node of the backward pass made the line whose operator made the node. `made` is the number of allocations on the card
/// until the snapshot, `ends` that until the end of each step.
pub(super) fn add(snapshot: &mut Snapshot, device: usize, lines: &Lines, made: u64, ends: &[u64]) {
    let of_device = lines.marks.iter().filter(|mark| mark.0 == device);
    let mut marks: Vec<Mark> =
        of_device.map(|mark| Mark { number: mark.1, place: mark.2, node: mark.3.as_str() }).collect();
    if marks.is_empty() {
        return;
    }
    marks.sort_by_key(|mark| mark.number);
    let allocations = snapshot.trace(device).iter().filter(|event| event.action == Action::Alloc);
    let own: Vec<Option<u64>> = allocations.map(|event| own_line(snapshot, event.stack)).collect();
    // The trace may lack its first entries.
    let before = made.saturating_sub(own.len() as u64);
    let marks = spread(marks, &own, before, ends);
    let last = marks.len() - 1;
    let stack_of = |number: u64| {
        let number = before.saturating_add(number);
        // The last node that started until then; of several at the same number, the last one.
        let at = marks.partition_point(|mark| mark.number <= number).checked_sub(1)?;
        // After the last node nothing bounds its time.
        let is_bounded = at < last || marks[last].number == number;
        (is_bounded && marks[at].node != NO_NODE && is_of_one_step(marks[at].number, number, ends)).then_some(at as u64)
    };
    let frames = |at: u64| -> Vec<AddedFrame> {
        let Mark { place, node, .. } = marks[at as usize];
        let node = format!("torch::autograd::generated::{node}::apply()");
        let place = lines.places.get(place).map_or(&[][..], Vec::as_slice);
        std::iter::once(("??".to_string(), 0, node)).chain(place.iter().cloned()).collect()
    };
    snapshot.add_stacks(device, stack_of, frames);
}

/// True if no step ended between two numbers of allocations: a node of an earlier step made nothing in a step that has no marks.
fn is_of_one_step(mark: u64, number: u64, ends: &[u64]) -> bool {
    // A node at the end of a step is the last one of that step, and not the first of the next.
    ends.partition_point(|end| *end < mark) == ends.partition_point(|end| *end <= number)
}

/// Returns what tells one line from another; `None` for an allocation without one.
fn own_line(snapshot: &Snapshot, stack: lab_traces::snapshot::StackId) -> Option<u64> {
    let frame = snapshot.stack(stack).next()?;
    let mut hash = DefaultHasher::new();
    (frame.filename, frame.line).hash(&mut hash);
    Some(hash.finish())
}

/// Adds marks to steps that have none, from a step that made as many allocations at the same lines: only some steps are marked, because
/// that takes time. In a step that is like no other, each backward pass has those of a pass that is like it. `own` are the lines of the
/// allocations from number `before` on.
fn spread<'a>(marks: Vec<Mark<'a>>, own: &[Option<u64>], before: u64, ends: &[u64]) -> Vec<Mark<'a>> {
    let made = before + own.len() as u64;
    // The last step may have no end: the script ran out of memory in it.
    let ends = ends.iter().copied().filter(|end| (before..=made).contains(end)).chain([made]);
    let mut steps: Vec<Range<u64>> = Vec::new();
    for end in ends {
        let start = steps.last().map_or(before, |step| step.end);
        steps.push(start..end);
    }
    let of = |step: &Range<u64>| {
        let first = marks.partition_point(|mark| mark.number < step.start);
        &marks[first..marks.partition_point(|mark| mark.number < step.end)]
    };
    let lines = |step: &Range<u64>| &own[(step.start - before) as usize..(step.end - before) as usize];
    let (marked, others): (Vec<_>, Vec<_>) = steps.iter().partition(|step| !of(step).is_empty());
    let is_last = |step: &Range<u64>| steps.last() == Some(step);
    let mut found = marks.clone();
    for step in others {
        let repeats = |other: &&&Range<u64>| {
            let (here, there) = (lines(step), lines(other));
            here == there || is_last(step) && there.starts_with(here)
        };
        if let Some(same) = marked.iter().filter(repeats).min_by_key(|other| other.start.abs_diff(step.start)) {
            found.extend(moved(of(same), same.start, step.start).filter(|mark| mark.number <= step.end));
        }
    }
    found.sort_by_key(|mark| mark.number);
    let all: Vec<Pass> = steps.iter().flat_map(|step| passes(lines(step), step.start)).collect();
    let more = spread_by_passes(&found, &all);
    found.extend(more);
    found.sort_by_key(|mark| mark.number);
    found
}

/// Returns marks for the passes that have none, each from a pass that is like it.
fn spread_by_passes<'a>(marks: &[Mark<'a>], passes: &[Pass]) -> Vec<Mark<'a>> {
    let of = |pass: &Pass| {
        let first = marks.partition_point(|mark| mark.number < pass.numbers.start);
        &marks[first..marks.partition_point(|mark| mark.number < pass.numbers.end)]
    };
    let (marked, others): (Vec<&Pass>, Vec<&Pass>) = passes.iter().partition(|pass| !of(pass).is_empty());
    let mut by_count: HashMap<u64, Vec<&Pass>> = HashMap::new();
    for pass in marked {
        by_count.entry(pass.count()).or_default().push(pass);
    }
    let mut found = Vec::new();
    for pass in others {
        let alike = by_count.get(&pass.count()).into_iter().flatten();
        if let Some(same) = alike.filter(|other| pass.repeats(other)).max_by_key(|other| other.lines.len()) {
            found.extend(moved(of(same), same.numbers.start, pass.numbers.start));
            // What another pass of this step made is not of this one's last node.
            found.push(Mark { number: pass.numbers.end, place: 0, node: NO_NODE });
        }
    }
    found
}

/// Moves marks from one place to another.
fn moved<'a>(marks: &[Mark<'a>], from: u64, to: u64) -> impl Iterator<Item = Mark<'a>> {
    marks.iter().map(move |mark| Mark { number: mark.number - from + to, ..*mark })
}

/// A backward pass: allocations without lines, and the lines of the forward pass before them.
struct Pass<'a> {
    lines: &'a [Option<u64>],
    /// The allocations, by number.
    numbers: Range<u64>,
}

impl Pass<'_> {
    /// True if this pass does what another one did. Other lines may come before those of the forward pass: an evaluation in between.
    fn repeats(&self, other: &Pass) -> bool {
        self.count() == other.count() && !other.lines.is_empty() && self.lines.ends_with(other.lines)
    }

    fn count(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }
}

/// Divides the allocations of a step, which begin at a number.
fn passes(lines: &[Option<u64>], start: u64) -> Vec<Pass<'_>> {
    let mut found = Vec::new();
    let (mut forward, mut at) = (0, 0);
    while at < lines.len() {
        let length = lines[at..].iter().take_while(|line| line.is_none()).count();
        if length > 0 {
            let first = start + at as u64;
            found.push(Pass { lines: &lines[forward..at], numbers: first..first + length as u64 });
            forward = at + length;
        }
        at += length.max(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_marks_of_one_that_made_its_allocations_at_the_same_lines() {
        let mark = |number, place| Mark { number, place, node: "MulBackward0" };
        let (step, longer) = ([Some(1), Some(2), None, None], [Some(1), Some(2), Some(2), None, None]);
        // Six steps from number 100 on, the third with other lines, and one that ran out of memory before its end.
        let own: Vec<Option<u64>> = [&step[..], &step, &longer, &step, &longer, &step, &longer[..4]]
            .iter()
            .flat_map(|step| step.to_vec())
            .collect();
        let ends = [90, 104, 108, 113, 117, 122, 126];
        let marks = vec![mark(106, 7), mark(107, 8), mark(120, 9)];
        let found = spread(marks, &own, 100, &ends);
        let expected = [
            (102, 7),
            (103, 8),
            (106, 7),
            (107, 8),
            (111, 9),
            (115, 7),
            (116, 8),
            (120, 9),
            (124, 7),
            (125, 8),
            (129, 9),
        ];
        assert_eq!(found.iter().map(|mark| (mark.number, mark.place)).collect::<Vec<_>>(), expected);
        let other = spread(vec![mark(2, 7)], &[Some(1), None, None, Some(2), None, None], 0, &[3, 6]);
        assert_eq!(other, [mark(2, 7)], "as many allocations at other lines");
    }

    #[test]
    fn a_pass_of_a_step_that_is_like_no_other_has_the_marks_of_one_that_is_like_it() {
        let mark = |number, place| Mark { number, place, node: "MulBackward0" };
        let usual = [Some(1), Some(2), None, None, Some(3)];
        // An evaluation before the forward pass, a second pass that no step had, and one of another length.
        let once = [Some(9), Some(9), Some(1), Some(2), None, None, Some(8), None, Some(1), Some(2), None, None, None];
        let own = [&usual[..], &once, &usual].concat();
        let found = spread(vec![mark(2, 7), mark(3, 8)], &own, 0, &[5, 18, 23]);
        let shown: Vec<_> = found.iter().map(|mark| (mark.number, mark.place, mark.node == NO_NODE)).collect();
        let end = (11, 0, true);
        assert_eq!(
            shown,
            [(2, 7, false), (3, 8, false), (9, 7, false), (10, 8, false), end, (20, 7, false), (21, 8, false)]
        );
    }

    #[test]
    fn a_step_without_marks_has_no_lines_rather_than_those_of_the_step_before_it() {
        let ends = [104, 108];
        assert!(is_of_one_step(102, 103, &ends) && is_of_one_step(105, 107, &ends) && is_of_one_step(109, 120, &ends));
        assert!(
            !is_of_one_step(102, 104, &ends) && !is_of_one_step(104, 107, &ends) && !is_of_one_step(103, 109, &ends)
        );
    }
}
