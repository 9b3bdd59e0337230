//! Protection of the user's files, which no process of a run can shed.
//!
//! A *keeper* (`keeper.rs`) is a process between this program and the commands. It enters a namespace of its own (`namespace.rs`), in
//! which writes go to upper layers of overlays (`mounts.rs` says of which folders), starts the commands, answers those of their system
//! calls that a filter hands to it (`filter.rs`, `supervisor.rs`), and ends them all if this program is killed. Where there is no
//! namespace, the filter hands over all calls that change files (`changes.rs`), and `policy.rs` decides. Without filters, Landlock holds
//! back most changes (`landlock.rs`).
//!
//! ```text
//! keeper ─► duty ─┬► namespace ─► mounts; rights; landlock; inherited
//!                 └► supervisor ─► servers, signals, caller ─► lookup; rename ─► whole_copy
//!                                └► veto ─► policy; changes ─► filter
//! ```

mod caller;
mod changes;
mod descendants;
mod duty;
mod event;
mod filter;
mod inherited;
mod keeper;
mod landlock;
mod lookup;
mod mounts;
mod namespace;
mod policy;
mod removal;
mod rename;
mod rights;
mod servers;
mod signals;
mod supervisor;
mod system;
mod title;
mod veto;
mod way;
mod whole_copy;

pub(super) use descendants::descendants;
pub(super) use keeper::{Keeper, Layer};
pub(super) use removal::remove_folder;
pub(super) use way::{Wanted, Way};
pub(super) use whole_copy::copy_file;
