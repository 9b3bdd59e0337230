//! Verdict of a rehearsal: whether the script fits, whether the figures are exact, and what was not seen.

use lab_results::{NotAsOnACard, UnknownRead};

use super::answers::Answer;
use super::run::{Ending, Followed};

/// Events of the library's log that do not affect the figures (`docs/rehearse.md`).
const HARMLESS: [&str; 6] =
    ["collective", "no_kernel_image", "addresses_not_reserved", "context_does_not_fit", "no_such_function", "asked_size"];

/// Returns whether the script fits; `None` if that is unknown.
pub(super) fn fits(followed: &Followed, answers: &[Answer], log: &[NotAsOnACard]) -> Option<bool> {
    let failed = followed.ending == Ending::Ended && !followed.exit.is_some_and(|exit| exit.success());
    let ended_by_memory = answers.iter().any(|answer| answer.exception.as_ref().is_some_and(|e| e.out_of_memory));
    let ran_out = answers.iter().any(|answer| answer.oom.is_some());
    let full_at_once = log.iter().any(|one| one.event == "context_does_not_fit");
    // A script that continues after it ran out of memory handles the error: for example, it searches for its largest batch. That is not a failure.
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

/// True if nothing that differs from a real card can have changed a size.
pub(super) fn is_exact(reads: &[UnknownRead], log: &[NotAsOnACard], problems: &[String]) -> bool {
    let harmless = |one: &NotAsOnACard| HARMLESS.contains(&one.event.as_str());
    problems.is_empty() && reads.iter().all(UnknownRead::is_number) && log.iter().all(harmless)
}

/// Returns the uses of the network that were not seen, and may take more memory than those that were.
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
