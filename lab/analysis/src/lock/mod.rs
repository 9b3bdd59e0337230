//! A memory lock: the memory of a run, written down, so that a later run can be compared with it to the byte.
//!
//! | file | what it knows |
//! |---|---|
//! | `footprint` | memory of a run: its peaks, their holders, a hash over its events |
//! | `file` | several such runs in a file, schema `vramlab-lock-1` |
//! | `compare` | what grew, and in which operators |

mod compare;
mod file;
mod footprint;

pub use compare::{Change, Comparison, Part, Tolerance, Verdict};
pub use file::{Lock, Locked, SCHEMA};
pub use footprint::{EventList, Footprint, Peak};
