//! The keys, explained.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::put;
use super::theme::Theme;

/// The keys first: the smallest screen shows these.
const LINES: [(&str, &str); 20] = [
    ("← → h l", "one event"),
    ("⇧← ⇧→ H L", "1 % of what is shown"),
    ("PgUp PgDn", "previous, next step (or phase)"),
    ("p P", "next, previous peak"),
    ("o O", "next, previous out of memory"),
    ("m", "the highest moment"),
    ("Home End", "first, last event"),
    ("/ n N", "search; next, previous hit"),
    ("+ -", "zoom"),
    ("Tab ↑ ↓", "other list; scroll it"),
    ("q Esc", "quit; here, any key goes back"),
    ("", ""),
    ("█", "allocated"),
    ("░", "between the least and the most of a column's events"),
    ("─", "reserved"),
    ("╌", "the limit: the memory that there is, where it is known"),
    ("▲ × •", "the cursor; out of memory; hits of the search"),
    ("█ ▒ ░ ·", "a segment: taken by blocks, more than half, less, free"),
    ("peak", "rises and falls by a tenth of the highest, or more"),
    ("category?", "guessed from stacks, as steps of a snapshot are"),
];

/// Explains the keys on the whole screen.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, theme: Theme) {
    put(buffer, (area.x, area.y, area.width), "Keys", theme.bold());
    for (row, (key, meaning)) in LINES.iter().enumerate().take(usize::from(area.height) - 1) {
        let y = area.y + 1 + row as u16;
        put(buffer, (area.x, y, 10), key, theme.bold());
        put(buffer, (area.x + 11, y, area.width - 11), meaning, theme.plain());
    }
}
