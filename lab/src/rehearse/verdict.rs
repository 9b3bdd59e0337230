//! Verdict of a rehearsal: whether the script fits, how exact the figures are, and what was not seen.

use lab_results::{
    ASKED_IN_A_RANGE, ASKED_OF_ONE_CAPABILITY, Inexact, NotAsOnACard, RehearsedRank, UnknownRead, open_growth,
};

use super::answers::Answer;
use super::run::{Ending, Followed};

/// Percents of the peak that cuDNN's workspaces took where they were measured, at most: those of the detector in `docs/evidence-rehearse.md`.
const WORKSPACES: u64 = 11;

/// Thousandths of the peak by which batch norm's workspaces moved it, at most: trainings with batch norm on an H200, whose convolutions cuDNN
/// was asked about (`docs/evidence-rehearse.md`).
const OF_BATCH_NORM: u64 = 3;

/// Returns whether the script fits; `None` if that is unknown. A script that was stopped fits only if its memory does not grow.
pub(super) fn fits(
    followed: &Followed,
    answers: &[Answer],
    log: &[NotAsOnACard],
    ranks: &[RehearsedRank],
) -> Option<bool> {
    let grows = open_growth(ranks).is_some();
    let was_stopped = followed.ending != Ending::Ended;
    fits_so_far(followed, answers, log).filter(|fits| !(*fits && was_stopped && grows))
}

/// Returns whether what the script did fits.
fn fits_so_far(followed: &Followed, answers: &[Answer], log: &[NotAsOnACard]) -> Option<bool> {
    let failed = followed.ending == Ending::Ended && !followed.exit.is_some_and(|exit| exit.success());
    let ended_by_memory = answers.iter().any(|answer| answer.exception.as_ref().is_some_and(|e| e.out_of_memory));
    let full_at_once = log.iter().any(|one| one.event == "context_does_not_fit");
    // A script that continues after it ran out of memory handles the error: for example, it searches for its largest batch. That is not a failure.
    if ended_by_memory || full_at_once || (failed && ended_after_it_ran_out(followed, answers)) {
        return Some(false);
    }
    let steps = answers.iter().map(|answer| answer.steps).max().unwrap_or(0);
    match followed.ending {
        _ if answers.is_empty() => None,
        Ending::Steps | Ending::Seen => Some(true),
        Ending::Ended => (!failed && are_finished(answers)).then_some(true),
        Ending::Time => (steps > 0).then_some(true),
        Ending::Interrupted => None,
    }
}

/// True if a script that failed ended by itself after memory ran out, without another step, another exception or a signal: it handles that
/// by an exit code. Otherwise something else is why it failed.
fn ended_after_it_ran_out(followed: &Followed, answers: &[Answer]) -> bool {
    let by_itself = followed.exit.is_some_and(|exit| exit.code().is_some_and(|code| !OF_SIGNALS.contains(&code)));
    let no_more = |answer: &Answer| answer.oom.as_ref().is_some_and(|oom| answer.steps <= oom.step);
    by_itself && answers.iter().all(|answer| answer.exception.is_none()) && answers.iter().any(no_more)
}

/// Exit codes of a shell whose child was ended by a signal.
const OF_SIGNALS: std::ops::RangeInclusive<i32> = 129..=192;

/// True if a process of each rank ended by itself and well, and said so. A shell may end well after a script that failed or was killed.
fn are_finished(answers: &[Answer]) -> bool {
    let is_finished = |answer: &Answer| answer.why != "running" && answer.exception.is_none();
    answers.iter().all(|answer| answers.iter().any(|other| other.rank == answer.rank && is_finished(other)))
}

/// True if the figures are those of a whole step, or of a whole script, that did not fail: only these can be exact.
pub(super) fn is_whole(followed: &Followed, answers: &[Answer], log: &[NotAsOnACard]) -> bool {
    let steps = answers.iter().map(|answer| answer.steps).max().unwrap_or(0);
    fits_so_far(followed, answers, log) == Some(true) && (steps > 0 || followed.ending == Ending::Ended)
}

/// Returns what may have changed a size, each with the bytes that it can move, if they have a bound.
pub(super) fn inexact(
    reads: &[UnknownRead],
    log: &[NotAsOnACard],
    problems: &[String],
    ranks: &[RehearsedRank],
) -> Vec<Inexact> {
    let mut found: Vec<Inexact> = Vec::new();
    let mut add = |what: String, bytes: Option<u64>| {
        if !found.iter().any(|known| known.what == what) {
            found.push(Inexact { what, bytes });
        }
    };
    for read in reads.iter().filter(|read| !read.is_number() && !read.is_sound()) {
        add(read.as_a_reason(), None);
    }
    let peak = ranks.iter().map(|rank| rank.peak_allocated).max().unwrap_or(0);
    for one in log.iter().filter(|one| one.can_change_figures()) {
        match one.event.as_str() {
            "unknown_size" if one.name.contains("BatchNormalization") => {
                let what = "batch norm's workspaces are not known: where they were measured, they moved the peak by 0.3 % at most";
                add(what.to_string(), Some(peak / 1000 * OF_BATCH_NORM));
            }
            "unknown_size" => {
                let what = format!(
                    "cuDNN's workspaces are not known: where they were measured, they took {WORKSPACES} % of the peak at most"
                );
                add(what, Some(peak / 100 * WORKSPACES));
            }
            ASKED_IN_A_RANGE | ASKED_OF_ONE_CAPABILITY => {
                let what = "cuDNN named its workspaces in a range: cuBLASLt, or an engine for this card alone, has a part in some";
                add(what.to_string(), one.name.parse().ok());
            }
            "unknown_read" => add(format!("the host read {} bytes that are not known", one.name), None),
            event => add(format!("{} ({})", one.name, event.replace('_', " ")), None),
        }
    }
    for problem in problems {
        add(problem.clone(), None);
    }
    found
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
        ("generation", seen(|answer| answer.seen.generation) || !seen(|answer| answer.can_generate)),
        ("batches of other shapes", false),
    ];
    all.iter().filter(|(_, seen)| !seen).map(|(name, _)| (*name).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_that_nobody_named_move_the_peak_as_far_as_was_measured() {
        let ranks = [RehearsedRank { peak_allocated: 100_000, ..RehearsedRank::default() }];
        let bytes = |name: &str| {
            let one = NotAsOnACard { event: "unknown_size".into(), name: name.into() };
            inexact(&[], &[one], &[], &ranks).first().and_then(|reason| reason.bytes)
        };
        assert_eq!(bytes("cudnn execution plan"), Some(11_000));
        assert_eq!(bytes("cudnnGetBatchNormalizationBackwardExWorkspaceSize"), Some(300));
    }
}
