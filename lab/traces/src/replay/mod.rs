//! Replays a recorded run through any allocation policy.
//!
//! ```text
//! file ─ read ─► Columns ─┬─ trace ──► Trace ─ run ─► Observer: Figures (for people), Recorder (the file's own columns)
//!                         └─ events ─►   │
//!                                        └─ Policy: an allocator on a device that accounts and stores nothing
//! ```
//!
//! A [`Trace`] holds only the program's requests: sizes, order, streams. Running it shows where a policy places blocks and how much memory it takes.
//! Files are read as a stream: a trace takes 16 bytes per operation here in any format, and files and traces beyond stated limits are refused.

mod columns;
mod events;
mod fields;
mod figures;
mod policy;
mod read;
mod run;
mod trace;

pub use columns::Recorder;
pub use figures::{DriverCalls, Figures, Sample, measure, run_once};
pub use policy::{Certificate, Machine, Opened, POLICY_NAMES, Policy};
pub use read::{MAX_BYTES, MAX_OPERATIONS};
pub use run::{Observer, Silent, replay};
pub use trace::{LowerBound, Operation, Settings, Start, Trace};
