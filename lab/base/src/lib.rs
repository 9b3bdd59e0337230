//! What all crates of the laboratory share.
//!
//! This crate uses none of them, and provides: [`Error`], which names the field of a run or the file that is wrong; [`named!`], for choices that have
//! names; [`bytes`] and [`figures`], which read and write sizes and numbers; [`cards`], GPUs by name; [`bands`], how far cards were from what was said; [`backends`], the devices that a program was
//! built with; [`similar`], names that may have been meant; [`section`], the parts of an answer: sentences, tables, charts, figures and notes, which
//! the program shows on a terminal, on a page or in a file.
//!
//! [`Error`]: error::Error

pub mod backends;
pub mod bands;
pub mod beside;
pub mod bytes;
pub mod cards;
pub mod changes;
mod contexts;
pub mod error;
pub mod figures;
pub mod files;
pub mod hidden;
pub mod host_memory;
pub mod input;
pub mod named;
pub mod python;
pub mod section;
pub mod sightings;
pub mod similar;
mod slices;
pub mod speeds;

pub use error::{Error, Result};
