//! PyTorch's memory snapshots.
//!
//! ```text
//! file ─ source ─┬─ unpickle ──┬─► Document ─ decode ─► Snapshot ─► held, peak, compare, leaks: what is in it
//!                └─ json_read ─┘      │  ▲                      └─► program ─► replay, tune: what would have been
//! file ◄─ pickle, json_write ─────────┘  └─ encode ◄─ record: our own runs
//! ```
//!
//! A [`Document`] holds everything in a file, known or not: converting loses nothing. A [`Snapshot`] is the decoded part, with texts and stacks kept
//! once. Reading executes nothing, and takes time and memory in proportion to the file whatever lengths the file claims. Errors name the byte.

mod added;
mod agreement;
mod compare;
mod decode;
mod devices;
mod equal;
mod growth;
mod held;
mod json_read;
mod json_write;
mod limit;
mod model;
mod objects;
mod opcodes;
mod open;
mod pages;
mod parse_error;
mod pickle;
mod pools;
mod program;
mod purposes;
mod ranges;
mod record;
mod release;
mod rewind;
mod sound;
mod source;
mod tune;
mod unpickle;
mod value;
mod what_if;

pub use added::AddedFrame;
pub use agreement::{Agreement, agreement};
pub use compare::{Change, Comparison, compare};
pub use devices::DeviceUse;
pub use growth::{Course, Growth, Leftovers, MIN_STEPS, Trend};
pub use held::{Held, Peak, Totals};
pub use json_write::{MAX_JSON_BYTES, write_json};
pub use limit::{card_had_room, why_it_failed};
pub use model::{
    Action, AllocatorSettings, Annotation, Block, Frame, FrameId, FrameText, PoolId, Segment, Snapshot, StackId,
    StreamId, TraceEvent, total,
};
pub use objects::read_objects;
pub use open::{Format, MAX_BYTES};
pub use pickle::write_pickle;
pub use program::Program;
pub use ranges::TimeRange;
pub use record::{Recording, record};
pub use release::{Release, Releases};
pub use tune::{Candidate, Cost, Tuned, tune};
pub use value::{Document, Kind, TextId, Texts, Value};
pub use what_if::{Setting, WhatIf, what_if};
