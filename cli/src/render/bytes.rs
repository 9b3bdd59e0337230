//! Formats bytes.

pub(crate) use lab::figures::{both, short, signed};
