//! The backend-agnostic core of vramlab.
pub mod backend;
pub mod dtype;
pub mod error;
pub mod layout;
pub mod memory;

pub use dtype::DType;
pub use error::{Error, Result};
pub use layout::{Layout, MAX_RANK};
