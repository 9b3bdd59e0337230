//! Colours of the parts of a screen, or none.

use lab::report::CategoryId;
use lab::view::History;
use ratatui::style::{Color, Modifier, Style};

/// Colours, or none: without them, only bold, dim and reversed text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    colored: bool,
}

/// Colours of the categories that this program knows: those of pages (`report.css`) that are nearest in the terminal's own palette, which is readable on its background.
const CATEGORIES: [(&str, Color); 8] = [
    ("parameter", Color::LightBlue),
    ("buffer", Color::Gray),
    ("optimizer_state", Color::Magenta),
    ("gradient", Color::Yellow),
    ("input", Color::LightCyan),
    ("activation", Color::Green),
    ("workspace", Color::LightYellow),
    ("temporary", Color::LightRed),
];

impl Theme {
    pub(crate) fn new(colored: bool) -> Self {
        Self { colored }
    }

    fn color(self, color: Color) -> Style {
        if self.colored { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn allocated(self) -> Style {
        self.color(Color::Blue)
    }

    pub(super) fn reserved(self) -> Style {
        self.color(Color::Yellow)
    }

    /// The card's limit, and requests that failed.
    pub(super) fn limit(self) -> Style {
        self.color(Color::Red)
    }

    pub(super) fn cursor(self) -> Style {
        self.color(Color::White).add_modifier(Modifier::REVERSED)
    }

    /// Hits of a search.
    pub(super) fn found(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub(super) fn category(self, history: &History, category: CategoryId) -> Style {
        let name = history.recording.category_name(category);
        let known = CATEGORIES.iter().find(|(known, _)| *known == name);
        known.map_or(self.plain(), |(_, color)| self.color(*color))
    }
}
