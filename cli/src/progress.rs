//! A progress bar on stderr, where somebody watches.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ui::Ui;
use crate::visible::visible;

/// A bar, or nothing at all when stderr is no terminal or `-q` was given.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of `length` steps.
    pub(crate) fn new(ui: &Ui, length: u64) -> Self {
        let visible = !ui.quiet && std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {eta}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// So many are done.
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
