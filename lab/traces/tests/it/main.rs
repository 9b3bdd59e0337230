//! The tests of recordings, snapshots and messages, as one program.

mod explain;
mod growth;
mod recordings;
mod releases;
mod replay;
mod snapshots;
