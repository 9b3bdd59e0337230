//! How far a rehearsal is, in words.

use lab::rehearse::Progress;

/// Returns the progress in words.
pub(super) fn told(progress: Progress, steps: Option<u64>) -> String {
    match progress {
        Progress::Step { steps: done, peak_allocated_bytes } => {
            let of = steps.map_or(String::new(), |steps| format!(" of {steps}"));
            format!("step {done}{of}: {} allocated at most", lab::figures::short(peak_allocated_bytes))
        }
        Progress::Enough => "it does not fit: once more on a card with memory enough, to see what it needs".into(),
        Progress::Again => "the script compiles: once more, with warm caches".into(),
    }
}
