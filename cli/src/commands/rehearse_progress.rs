//! How far a rehearsal is, in words.

use lab::rehearse::Progress;

/// Returns the progress in words.
pub(super) fn told(progress: Progress, steps: Option<u64>) -> String {
    match progress {
        Progress::Step { steps: done, peak_allocated_bytes } => {
            let of = steps.map_or(String::new(), |steps| format!(" of {steps}"));
            format!("step {done}{of}: {} allocated at most", lab::figures::short(peak_allocated_bytes))
        }
        Progress::Enough => {
            "it does not fit: running it again on a card with enough memory, to see what it needs".into()
        }
        Progress::Unprotected => format!("warning: {}", lab::rehearse::UNPROTECTED),
        Progress::Again => "the script compiles: running it again, with warm caches".into(),
    }
}
