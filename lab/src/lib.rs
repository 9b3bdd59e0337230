//! lab
pub mod data;
