//! The curve of allocated and reserved bytes over events.

use std::ops::Range;

use lab::figures::short;
use lab::view::Browser;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::screen::Screen;
use super::text::{put, put_right};
use crate::render::grouped;

/// Columns of the labels, with a space after them.
const LABELS: u16 = 10;
/// Parts of a character by height.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Events of a column, of as many columns as there are. If there are fewer events than columns, each event has several, so that a step is drawn as a step.
fn events(browser: &Browser, column: u64, columns: u64) -> Range<usize> {
    let (from, shown) = (u64::from(browser.from()), u64::from(browser.shown()));
    let first = from + column * shown / columns;
    let next = (from + (column + 1) * shown / columns).max(first + 1);
    first as usize..next as usize
}

/// First column of an event; `None` if it is not shown.
fn column(browser: &Browser, event: u32, columns: u64) -> Option<u64> {
    let shown = u64::from(browser.shown());
    let after = u64::from(event.checked_sub(browser.from())?);
    if after >= shown {
        return None;
    }
    Some(if shown < columns { (after * columns).div_ceil(shown) } else { ((after + 1) * columns).div_ceil(shown) - 1 })
}

/// Bytes at the upper end of the plot: all that was ever allocated; what was reserved, and the limit, if they are not far beyond.
fn top(screen: &Screen) -> u64 {
    let history = &screen.browser.history;
    let all = 0..history.len() as usize;
    let allocated = history.allocated.extremes(all.clone()).1.max(1);
    let limit = history.recording.limit.as_ref().map_or(0, |(_, bytes)| *bytes);
    let near = |most: u64, further: u64, times: u64| if further / times <= most { most.max(further) } else { most };
    near(near(allocated, history.reserved.extremes(all).1, FAR), limit, 2)
}

/// Reserved bytes are far beyond allocated ones if they are more than this many times as much.
const FAR: u64 = 3;

/// Heights in eighths of a row.
struct Scale {
    rows: u64,
    top: u64,
}

impl Scale {
    fn eighths(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.rows * 8) / u128::from(self.top)) as u64
    }

    /// Row of a line at a height, counted from the lowest; `None` above the plot.
    fn row(&self, bytes: u64) -> Option<u64> {
        (bytes <= self.top).then(|| (self.eighths(bytes).saturating_sub(1)) / 8)
    }
}

/// A character of the area: solid up to the least of the column's events, lighter up to the most.
fn area(row: u64, low: u64, high: u64) -> &'static str {
    let (from, to) = (row * 8, row * 8 + 8);
    match () {
        () if low >= to => "█",
        () if high <= from => " ",
        () if high >= to => {
            if low > from + 3 {
                "▒"
            } else {
                "░"
            }
        }
        () => EIGHTHS[(high - from) as usize],
    }
}

/// Draws the plot, and in the last one or two rows its axis.
pub(super) fn draw(buffer: &mut Buffer, place: Rect, screen: &Screen) {
    let axis = if place.height >= 7 { 2 } else { 1 };
    let rows = place.height - axis;
    let plot = Rect { x: place.x + LABELS, width: place.width - LABELS, height: rows, ..place };
    let scale = Scale { rows: rows.into(), top: top(screen) };
    labels(buffer, place, &scale, screen);
    let columns = u64::from(plot.width);
    let cursor = column(&screen.browser, screen.browser.cursor(), columns);
    for column in 0..columns {
        draw_column(buffer, plot, &scale, screen, column, cursor == Some(column));
    }
    marks(buffer, Rect { y: plot.bottom(), height: 1, ..plot }, screen);
    if axis == 2 {
        legend(buffer, Rect { y: plot.bottom() + 1, height: 1, ..plot }, screen);
    }
}

fn draw_column(buffer: &mut Buffer, plot: Rect, scale: &Scale, screen: &Screen, column: u64, is_cursor: bool) {
    let (history, theme) = (&screen.browser.history, screen.theme);
    let events = events(&screen.browser, column, plot.width.into());
    let (low, high) = history.allocated.extremes(events.clone());
    let (low, high) = (scale.eighths(low), scale.eighths(high));
    let reserved = scale.row(history.reserved.extremes(events).1);
    let limit = history.recording.limit.as_ref().and_then(|(_, bytes)| scale.row(*bytes));
    for row in 0..u64::from(plot.height) {
        let (mut text, mut style) = (area(row, low, high), theme.allocated());
        if text == " " {
            (text, style) = match () {
                () if reserved == Some(row) => ("─", theme.reserved()),
                () if limit == Some(row) => ("╌", theme.limit()),
                () if is_cursor => ("│", theme.plain()),
                () => continue,
            };
        } else if is_cursor {
            style = theme.cursor();
        }
        let y = plot.bottom() - 1 - row as u16;
        buffer.set_stringn(plot.x + column as u16, y, text, 1, style);
    }
}

fn labels(buffer: &mut Buffer, place: Rect, scale: &Scale, screen: &Screen) {
    let theme = screen.theme;
    let at = |row: u64| (place.x, place.y + (scale.rows - 1 - row) as u16, LABELS - 1);
    put_right(buffer, at(scale.rows - 1), &short(scale.top), theme.dim());
    put_right(buffer, at(0), "0", theme.dim());
    let limit = screen.browser.history.recording.limit.as_ref();
    let row = limit.and_then(|(_, bytes)| scale.row(*bytes)).filter(|row| (1..scale.rows - 1).contains(row));
    if let Some(row) = row {
        put_right(buffer, at(row), "limit", theme.limit());
    }
}

/// The cursor, failed requests and hits of a search, each under its column.
fn marks(buffer: &mut Buffer, place: Rect, screen: &Screen) {
    let (browser, theme) = (&screen.browser, screen.theme);
    let columns = u64::from(place.width);
    let there = |events: &[u32], column: u64| {
        let range = self::events(browser, column, columns);
        let first = events.partition_point(|&event| (event as usize) < range.start);
        events.get(first).is_some_and(|&event| (event as usize) < range.end)
    };
    let cursor = column(browser, browser.cursor(), columns);
    for column in 0..columns {
        let (text, style) = match () {
            () if cursor == Some(column) => ("▲", theme.bold()),
            () if there(&browser.history.failures, column) => ("×", theme.limit()),
            () if browser.found().is_some_and(|found| there(&found.events, column)) => ("•", theme.found()),
            () => continue,
        };
        buffer.set_stringn(place.x + column as u16, place.y, text, 1, style);
    }
}

/// The first and the last event shown, and between them the legend.
fn legend(buffer: &mut Buffer, place: Rect, screen: &Screen) {
    let (browser, theme) = (&screen.browser, screen.theme);
    let (from, last) = (browser.from(), browser.from() + browser.shown().saturating_sub(1));
    let (from, last) = (format!("event {}", grouped(from.into())), grouped(last.into()));
    let row = (place.x, place.y, place.width);
    put(buffer, row, &from, theme.dim());
    put_right(buffer, row, &last, theme.dim());
    let has_limit = browser.history.recording.limit.is_some();
    let what = if has_limit { "█ allocated  ─ reserved  ╌ limit" } else { "█ allocated  ─ reserved" };
    let (len, ends) = (what.chars().count() as u16, from.len().max(last.len()) as u16 + 2);
    if len + 2 * ends <= place.width {
        let x = place.x + (place.width - len) / 2;
        put(buffer, (x, place.y, len), what, theme.dim());
        put(buffer, (x, place.y, 1), "█", theme.allocated());
        put(buffer, (x + 13, place.y, 1), "─", theme.reserved());
        if has_limit {
            put(buffer, (x + 25, place.y, 1), "╌", theme.limit());
        }
    }
}
