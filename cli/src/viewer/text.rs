//! Text on a screen, cut to its place.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use crate::render::cut;
use crate::visible::visible;

/// Writes text at a place (column, row, width), cut to its width. Nothing in it acts on the terminal.
pub(super) fn put(buffer: &mut Buffer, (x, y, width): (u16, u16, u16), text: &str, style: Style) {
    let text = visible(text).replace(['\n', '\t'], " ");
    let text = cut(&text, usize::from(width));
    buffer.set_stringn(x, y, text, usize::from(width), style);
}

/// Writes text that ends at a place.
pub(super) fn put_right(buffer: &mut Buffer, (x, y, width): (u16, u16, u16), text: &str, style: Style) {
    let blank = usize::from(width).saturating_sub(text.chars().count()) as u16;
    put(buffer, (x + blank, y, width - blank), text, style);
}
