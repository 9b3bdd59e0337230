//! Bytes, written.

pub(crate) use lab::figures::{both, short, signed};
