//! Records of memory accounting: categories, sizes, and the holders at the moment when memory ran out.
//!
//! Plain data, below everything that fills it in: errors carry it.

mod category;
mod out_of_memory;
mod rings;

pub use category::{Category, CategoryBytes};
pub use out_of_memory::{Needs, OutOfMemory, Verdict};
pub use rings::Rings;
