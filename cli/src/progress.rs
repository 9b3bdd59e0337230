//! A progress bar on stderr, if it is a terminal.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::ui::Ui;
use crate::visible::visible;

/// Time between two drawings.
const TICK: Duration = Duration::from_millis(200);

/// A bar, or nothing at all when stderr is not a terminal or `-q` was given.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Makes a bar of `length` steps; 0 for an unknown length.
    pub(crate) fn new(ui: &Ui, length: u64) -> Self {
        let visible = !ui.quiet && std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        // Without a known length, the bar can only show activity.
        let template = if length == 0 { "{spinner} {msg} ({elapsed})" } else { "{wide_bar} {pos}/{len} {msg} {left}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("left", |state: &ProgressState, out: &mut dyn Write| {
                // The remaining time is unknown before the first step is done.
                if state.pos() > 0 {
                    let _ = write!(out, "ETA {:#}", HumanDuration(state.eta()));
                }
            }));
        }
        if visible {
            // Shows a message at once, however long the first step takes.
            bar.set_message("starting");
            bar.enable_steady_tick(TICK);
        }
        Self { bar }
    }

    /// Sets the number of steps done.
    pub(crate) fn set(&self, done: u64, message: impl Into<String>) {
        self.bar.set_message(visible(&message.into()).into_owned());
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
