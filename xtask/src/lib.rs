//! Rules that the project's sources keep, as functions over their text; `tests/` applies them.

/// Source text taken apart: code without comments, comments without code.
pub mod scan;
