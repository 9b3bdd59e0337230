//! Phases of a script, each with its peak and the line that reached it.

use lab_results::RehearsedPhase;
use lab_traces::snapshot::{Action, Snapshot};
use lab_traces::stacks::Place;

use super::answers::{Answer, Phase};
use super::places::{within, working_folder};

/// Returns the phases in the order in which they began, each as on the card and in the process that reserved most in it.
/// `snapshot` reads the one of an answer's process.
pub(super) fn phases(answers: &[Answer], snapshot: &dyn Fn(&Answer) -> Option<Snapshot>) -> Vec<RehearsedPhase> {
    let mut found: Vec<RehearsedPhase> = Vec::new();
    for answer in answers.iter().filter(|answer| !answer.phases.is_empty()) {
        let snapshot = snapshot(answer);
        for phase in &answer.phases {
            let made = answer.cards.iter().find(|card| card.index == phase.card).map(|card| card.made);
            let line = snapshot.as_ref().zip(made).and_then(|(snapshot, made)| line(snapshot, phase, made));
            let told = RehearsedPhase {
                name: phase.name.clone(),
                peak_allocated: phase.peak_allocated,
                peak_reserved: phase.peak_reserved,
                place: line.as_ref().and_then(|place| shown(place, &working_folder())),
                operator: line.and_then(|place| place.node.or(place.operator)),
                ..RehearsedPhase::default()
            };
            match found.iter_mut().find(|known| known.name == told.name) {
                Some(known) if known.peak_reserved >= told.peak_reserved => {}
                Some(known) => *known = told,
                None => found.push(told),
            }
        }
    }
    found
}

/// The place of the allocation after which most was requested in a phase. `made`: allocations on the card until the end of the trace.
fn line(snapshot: &Snapshot, phase: &Phase, made: u64) -> Option<Place> {
    let trace = snapshot.trace(phase.card);
    let in_trace = trace.iter().filter(|event| event.action == Action::Alloc).count() as u64;
    let mut number = made.saturating_sub(in_trace);
    let mut most: Option<(u64, usize)> = None;
    for (at, live) in snapshot.live_bytes(phase.card) {
        if trace[at].action != Action::Alloc {
            continue;
        }
        number += 1;
        let is_in = number > phase.since && number <= phase.until;
        if is_in && most.is_none_or(|(bytes, _)| live > bytes) {
            most = Some((live, at));
        }
    }
    most.map(|(_, at)| Place::from_stack(snapshot, trace[at].stack))
}

/// The script's line, else the library's.
fn shown(place: &Place, folder: &str) -> Option<String> {
    place.own.as_ref().or(place.library.as_ref()).map(|line| within(&line.within(""), folder))
}
