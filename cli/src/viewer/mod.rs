//! The viewer of a recording on a terminal, event by event.
//!
//! ```text
//! keys ─► Screen (lab::view::Browser, lists, search line) ─► draw ─► a buffer of characters ─► the terminal
//! ```
//!
//! Everything but `terminal` can be tested without one: `Screen::update` is a function of the key, and `draw` fills a buffer.

mod curve;
mod draw;
mod help;
mod lists;
mod screen;
mod terminal;
mod text;
mod theme;

#[cfg(test)]
mod tests;

pub(crate) use screen::Screen;
pub(crate) use terminal::{run, there_is_one};
pub(crate) use theme::Theme;
