//! Bytes, written.

pub(crate) use lab::figures::{both, lacking, short, signed};
