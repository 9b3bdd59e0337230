//! The tests of recordings, snapshots and messages, as one program.

mod card_addresses;
mod explain;
mod growth;
mod recordings;
mod releases;
mod replay;
mod snapshots;
