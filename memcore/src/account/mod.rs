//! The words in which memory is accounted for: what it is for, how much there is of it, who held it when it ran out.
//!
//! Plain data, below everything that fills it in: errors carry it.

mod category;
mod out_of_memory;
mod rings;

pub use category::{Category, CategoryBytes};
pub use out_of_memory::{Needs, OutOfMemory, Verdict};
pub use rings::Rings;
