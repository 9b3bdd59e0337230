//! Colours, or none.

use crate::visible::sequence;

/// Marks text for a terminal; where it is off, text stays as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    /// On or off.
    pub(crate) fn new(on: bool) -> Self {
        Self { on }
    }

    fn mark(self, code: &str, text: &str) -> String {
        if self.on { format!("{}{text}{}", sequence(&format!("{code}m")), sequence("0m")) } else { text.to_string() }
    }

    /// Headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.mark("1", text)
    }

    /// What failed.
    pub(crate) fn red(self, text: &str) -> String {
        self.mark("1;31", text)
    }

    /// What held.
    pub(crate) fn green(self, text: &str) -> String {
        self.mark("32", text)
    }

    /// What depends.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.mark("33", text)
    }
}
