//! The parts of a result, built once: terminals, pages, Markdown and CSV render the same sections.
//!
//! ```text
//! results (structs, JSON) ─► sections ─┬─ terminal, Markdown, CSV: cli
//!                                      └─ page: report
//! ```

mod chart;
mod table;
mod tries;
mod verdict;

pub use chart::{Bars, Chart, Series, Shape};
pub use table::{Cell, Table};
pub use tries::{MOST, NOT_HERE, Tries, Try};
pub use verdict::{Judged, Verdict};

/// A part of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    /// The answer, in a sentence or two.
    Answer(String),
    /// Heading of what follows.
    Heading(String),
    /// A sentence, or a paragraph.
    Note(String),
    /// Why the result may not be what was asked for. Terminals print it before the result, on standard error.
    Warning(String),
    /// What went wrong.
    Failure(String),
    /// Single figures.
    Figures(Vec<Figure>),
    /// Claims, judged.
    Verdicts(Vec<Judged>),
    /// Rows and columns.
    Table(Table),
    /// A table with one line a row: a terminal cuts what does not fit on the line, unless `--full`.
    List(Table),
    /// Curves.
    Chart(Chart),
    /// Curves that repeat what the other sections say: drawn on a page, and on a terminal with `--full`.
    Drawing(Chart),
    /// A bar for each of several things.
    Bars(Bars),
    /// Details for few readers: folded on a page, shown on a terminal with `--full`.
    Details {
        /// Title of the folded part.
        title: String,
        /// Its parts.
        sections: Vec<Section>,
    },
    /// Evidence for the answer: shown on a page, and on a terminal with `--full`.
    Rest(Vec<Section>),
    /// A command to type next.
    Command(String),
    /// Changes to try.
    Try(Tries),
}

/// A single figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Its value.
    pub value: Cell,
    /// A remark on it; may be empty.
    pub note: String,
}

/// Returns all tables of these sections in order, also those inside details and the rest.
pub fn tables(sections: &[Section]) -> Vec<&Table> {
    let mut out = Vec::new();
    for section in sections {
        match section {
            Section::Table(table) | Section::List(table) => out.push(table),
            Section::Details { sections, .. } | Section::Rest(sections) => out.extend(tables(sections)),
            _ => {}
        }
    }
    out
}
