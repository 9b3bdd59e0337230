//! The tests of recordings, snapshots and messages, as one program.

mod card_addresses;
mod cards;
mod differences;
mod explain;
mod frames;
mod growth;
mod objects;
mod private;
mod recordings;
mod releases;
mod replay;
mod snapshots;
mod traces;
mod unpacked;
