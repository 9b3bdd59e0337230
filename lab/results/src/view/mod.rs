//! A recording to be looked at event by event, as a program on a terminal does.
//!
//! ```text
//! Recording ─► History (curves, lives, segments, peaks, steps) ─► Moment: holders, categories, segments with their blocks
//!                  │                                                 ▲
//!                  └──────────► Browser (cursor, window, search) ────┘
//! ```
//!
//! A page keeps some moments of a long run; here every event can be reached. What lives after an event is found from the last of many
//! [`living`] lists before it, never from the beginning.

mod browser;
mod curve;
mod found;
mod history;
mod living;
mod moment;
mod peaks;
mod words;

pub use browser::{Action, Browser};
pub use curve::Curve;
pub use found::Found;
pub use history::{History, Marks};
pub use moment::{Cell, Holder, Moment, Placed, Segment};
