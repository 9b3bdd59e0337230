//! Origin and purpose of memory, as far as stacks tell.
//!
//! ```text
//! frames ─ frame: whose is each ─ place: the program's line, PyTorch's operator ─┐
//!        └ phase: forward, backward, step of the optimizer ─ lives ─ guess ──────┴─► held: rows of a moment
//! ```
//!
//! Snapshots of PyTorch 2.4 to 2.15 have frames of C++ and of the interpreter in their stacks, later ones of these without a source file. Snapshots
//! recorded with `stacks="python"` have none of them, and no frame at all for the backward pass.

mod differences;
mod frame;
mod guess;
mod held;
mod in_vain;
mod lives;
mod native;
mod phase;
mod place;
mod shared_lines;

pub use differences::{Differences, First, PlaceDifference, Request, differences};
pub use frame::{Origin, origin};
pub use guess::{Guesses, Role};
pub use held::{HeldRow, held_at};
pub use in_vain::kept_in_vain;
pub use lives::{Life, lives};
pub use phase::Phase;
pub use place::{Line, Place, callers, matches};
