//! How far a rehearsal is, in words.

use std::ops::ControlFlow;

use lab::rehearse::{Progress, Stage, Stop};

use super::shard;
use crate::interrupt;
use crate::ui::Ui;

/// Tells how far rehearsals are.
pub(super) struct Teller<'a> {
    ui: &'a Ui,
    stop: &'a Stop,
    /// True once it was said which of several rehearsals this is.
    is_one_of_many: bool,
}

impl<'a> Teller<'a> {
    pub(super) fn new(ui: &'a Ui, stop: &'a Stop) -> Self {
        Self { ui, stop, is_one_of_many: false }
    }

    /// Tells the progress, if there is any, and says whether to go on.
    pub(super) fn tell(&mut self, progress: Option<Progress>) -> ControlFlow<()> {
        match progress {
            None => {}
            Some(Progress::LineLeft) => self.ui.end_line(),
            Some(next @ (Progress::Change { .. } | Progress::Point { .. })) => {
                self.is_one_of_many = true;
                self.ui.tell(told(next, self.stop));
            }
            Some(progress) => {
                let before = if self.is_one_of_many { "  " } else { "" };
                // The next step says the same.
                let may_wait = matches!(progress, Progress::Before { .. } | Progress::Step { .. });
                let words = format!("{before}{}", told(progress, self.stop));
                if may_wait { self.ui.tell_between_lines(words) } else { self.ui.tell_apart(words) }
            }
        }
        interrupt::flow()
    }
}

/// Returns the progress of one rehearsal in words.
fn told(progress: Progress, stop: &Stop) -> String {
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
            let of = stop.of_steps(done);
            format!("step {done}{of}: {} allocated at most", lab::figures::short(peak_allocated_bytes))
        }
        Progress::Enough => {
            "it does not fit: running it again on a card with enough memory, to see what it needs".into()
        }
        Progress::LineLeft => String::new(),
        Progress::Unprotected { warning } => format!("warning: {warning}"),
        Progress::Change { words } => format!("it does not fit surely: running it again with {words}"),
        Progress::Point { values } => shard::named(&values),
        Progress::Late => "it uses several streams: running it again, with late events, for the upper figure".into(),
        Progress::Again => "the script compiles: running it again, with warm caches".into(),
    }
}
