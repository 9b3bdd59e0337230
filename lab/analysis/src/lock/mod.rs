//! A memory lock: what a run takes, written down, so that a later run can be held against it to the byte.
//!
//! | file | what it knows |
//! |---|---|
//! | `footprint` | what a run took: its peaks, who held what there, a hash over its events |
//! | `file` | several such runs in a file, schema `vramlab-lock-1` |
//! | `compare` | what grew, and who |

mod compare;
mod file;
mod footprint;

pub use compare::{Change, Comparison, Part, Tolerance, Verdict};
pub use file::{Lock, Locked, SCHEMA};
pub use footprint::{EventList, Footprint, Peak};
