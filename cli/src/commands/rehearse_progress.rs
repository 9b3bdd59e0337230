//! How far a rehearsal is, in words.

use lab::rehearse::{Progress, Stage, Stop};

/// Returns the progress in words.
pub(super) fn told(progress: Progress, stop: &Stop) -> String {
    match progress {
        Progress::Before { stage, seconds } => {
            let what = match stage {
                Stage::Starting => "starting the command",
                Stage::Python => "running Python",
                Stage::Importing => "importing PyTorch",
                Stage::Building => "PyTorch is there: step 1 is next",
            };
            if seconds == 0 { what.into() } else { format!("{what} ({seconds} s)") }
        }
        Progress::Step { steps: done, peak_allocated_bytes } => {
            let of = stop.of_steps();
            format!("step {done}{of}: {} allocated at most", lab::figures::short(peak_allocated_bytes))
        }
        Progress::Enough => {
            "it does not fit: running it again on a card with enough memory, to see what it needs".into()
        }
        Progress::Unprotected { warning } => format!("warning: {warning}"),
        Progress::Again => "the script compiles: running it again, with warm caches".into(),
    }
}
