//! Whether it fits, and how sure that is.

use lab_results::{NotAsOnACard, UnknownRead};

use super::answers::Answer;
use super::run::{Ending, Followed};

/// Events of the library's log that say nothing against the figures (`docs/rehearse.md`).
const HARMLESS: [&str; 5] =
    ["collective", "no_kernel_image", "addresses_not_reserved", "context_does_not_fit", "no_such_function"];

/// Whether it fits; `None` where that cannot be said.
pub(super) fn fits(followed: &Followed, answers: &[Answer], log: &[NotAsOnACard]) -> Option<bool> {
    let failed = followed.ending == Ending::Ended && !followed.exit.is_some_and(|exit| exit.success());
    let ended_by_memory = answers.iter().any(|answer| answer.exception.as_ref().is_some_and(|e| e.out_of_memory));
    let ran_out = answers.iter().any(|answer| answer.oom.is_some());
    let full_at_once = log.iter().any(|one| one.event == "context_does_not_fit");
    // What a script survives, it handles: those who look for their batch by running out of memory do.
    if ended_by_memory || full_at_once || (failed && ran_out) {
        return Some(false);
    }
    let steps = answers.iter().map(|answer| answer.steps).max().unwrap_or(0);
    match followed.ending {
        _ if answers.is_empty() => None,
        Ending::Steps | Ending::Seen => Some(true),
        Ending::Ended => (!failed).then_some(true),
        Ending::Time => (steps > 0).then_some(true),
        Ending::Interrupted => None,
    }
}

/// Whether nothing can have changed a size.
pub(super) fn is_exact(reads: &[UnknownRead], log: &[NotAsOnACard], problems: &[String]) -> bool {
    let harmless = |one: &NotAsOnACard| HARMLESS.contains(&one.event.as_str());
    problems.is_empty() && reads.iter().all(UnknownRead::is_number) && log.iter().all(harmless)
}

/// What was not seen, and may take more than what was.
pub(super) fn not_reached(followed: &Followed, answers: &[Answer]) -> Vec<String> {
    if answers.is_empty() || followed.is_complete() && followed.ending == Ending::Ended {
        return Vec::new();
    }
    let seen = |of: fn(&Answer) -> bool| answers.iter().any(of);
    let all = [
        ("evaluation", seen(|answer| answer.seen.evaluation)),
        ("saving", seen(|answer| answer.seen.saving)),
        ("generation", seen(|answer| answer.seen.generation)),
        ("batches of other shapes", false),
    ];
    all.iter().filter(|(_, seen)| !seen).map(|(name, _)| (*name).to_string()).collect()
}
