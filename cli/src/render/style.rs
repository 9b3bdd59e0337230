//! Colours for a terminal, or none.

use crate::visible::sequence;

/// Adds colours to text; if off, text stays as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    pub(crate) fn new(on: bool) -> Self {
        Self { on }
    }

    /// True for colours.
    #[cfg(feature = "view")]
    pub(crate) fn is_on(self) -> bool {
        self.on
    }

    fn mark(self, code: &str, text: &str) -> String {
        if self.on { format!("{}{text}{}", sequence(&format!("{code}m")), sequence("0m")) } else { text.to_string() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.mark("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.mark("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.mark("32", text)
    }

    /// Colours the word of a verdict.
    pub(crate) fn verdict(self, word: &str) -> String {
        match word {
            "yes" | "holds" | "fits" => self.green(word),
            "no" | "fails" => self.red(word),
            "depends" => self.yellow(word),
            _ if word.starts_with("no: ") => self.red(word),
            _ => word.to_string(),
        }
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.mark("33", text)
    }
}
