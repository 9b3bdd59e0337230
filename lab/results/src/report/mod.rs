//! Reports: one HTML file that opens anywhere, and files that other programs open.
//!
//! ```text
//! ledger, events file (read), snapshot ─► Recording ─ timeline ─► moments, phases, blocks, segments ─┐
//!                                             │                                                    page ─► one HTML file
//! results of commands ────────────────────────┼─ sections ────────────────────────────────────────────┘
//!                                             └─ export: Chrome trace, folded stacks, MiniMalloc
//! ```
//!
//! The page loads nothing: style and scripts are in it, and so are the data, as JSON. Whatever comes from a file or is a
//! name is escaped on its way in (`text`, `payload`), and the scripts make text of it, never markup.

mod blocks;
mod chart;
mod compare;
mod contents;
pub mod events;
pub mod export;
mod from_snapshot;
mod glossary;
mod headline;
mod page;
mod part;
mod payload;
mod pieces;
pub mod read;
mod recording;
mod sections;
pub(crate) mod segments;
pub(crate) mod steps;
mod table;
mod text;
mod timeline;

pub use compare::side_by_side;
pub use headline::limit_of;
pub use page::html;
pub use part::Part;
pub use pieces::{DRAWING, STYLE, glossary, markup, picture};
pub use read::Source;
pub use recording::{CategoryId, Event, MAX_CATEGORIES, NameId, Recording, UNKNOWN};
pub use steps::Opening;
pub use timeline::{Detail, Moment, PhasePeak, Stretch, Timeline};
