//! What a backend must pass.

pub mod reference;

pub use reference::Reference;
