//! Networks that are not built in: the user's own Python builds the class that a configuration names, without weights, and a rehearsal trains it.
//!
//! ```text
//! RunSpec ─► request (its fields as options) ─► driver (a package of Python, in a folder) ─► plan: what was chosen, and the program
//!                                               the same under rehearse ─► answer: the rehearsal as the result of a prediction
//! ```
//!
//! `driver/` is the package. It reads one request as JSON and answers in JSON (`chosen.rs`), so that its protocol is tested without PyTorch.

#[cfg(target_os = "linux")]
mod answer;
mod chosen;
mod driver;
mod graphs;
mod hub_cache;
mod request;
mod which;

#[cfg(target_os = "linux")]
pub use answer::answer;
pub use chosen::{Refusal, Told};
pub use driver::Driver;
pub use graphs::{Asked, Compared, Entry, key};
pub use hub_cache::in_hub_cache;
pub use request::{environment, file_of, options, with_phases};
pub use which::{Which, is_of_the_loss, which};
