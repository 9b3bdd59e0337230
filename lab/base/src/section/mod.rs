//! What a result consists of, said once: terminals, pages, Markdown and CSV render the same sections.
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
    /// Names what follows.
    Heading(String),
    /// A sentence, or a paragraph.
    Note(String),
    /// Where the result may not be what was asked for. Terminals have it before the result, on standard error.
    Warning(String),
    /// What went wrong.
    Failure(String),
    /// Single figures.
    Figures(Vec<Figure>),
    /// Claims, judged.
    Verdicts(Vec<Judged>),
    /// Rows and columns.
    Table(Table),
    /// Rows and columns, a row a line: a terminal cuts what the line has no room for, unless `--full`.
    List(Table),
    /// Curves.
    Chart(Chart),
    /// Curves that say nothing new: drawn on a page, and on a terminal with `--full`.
    Drawing(Chart),
    /// A bar for each of several things.
    Bars(Bars),
    /// What few readers want: folded on a page, shown on a terminal with `--full`.
    Details {
        /// What is folded away.
        title: String,
        /// Its parts.
        sections: Vec<Section>,
    },
    /// What bears the answer out: shown on a page, and on a terminal with `--full`.
    Rest(Vec<Section>),
    /// A command to type next.
    Command(String),
    /// What to change.
    Try(Tries),
}

/// A single figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is of.
    pub name: String,
    /// The figure.
    pub value: Cell,
    /// What to know about it; may be empty.
    pub note: String,
}

/// All tables of these sections, those of details and of the rest too, in their order.
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
