//! The lists of holders and of segments, after the event under the cursor.

use lab::figures::{counted, short};
use lab::view::{Cell, Segment};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::screen::{List, Screen};
use super::text::{put, put_right};

/// Writes a list's heading; returns the rows that are shown, and the place of the first.
fn heading(
    buffer: &mut Buffer,
    area: Rect,
    (screen, list): (&Screen, List),
    count: usize,
    (title, other): (&str, Option<&str>),
) -> (std::ops::Range<usize>, u16) {
    let rows = usize::from(area.height) - 1;
    let first = screen.scrolled[list as usize].min(count.saturating_sub(rows));
    let shown = first..(first + rows).min(count);
    let part =
        if shown.len() < count { format!(" ({} to {} of {count})", first + 1, shown.end) } else { String::new() };
    let title = title.to_string() + &part;
    put(buffer, (area.x, area.y, area.width), &title, screen.theme.bold());
    let used = title.chars().count() as u16 + 2;
    if let Some(other) = other.filter(|other| used + (other.chars().count() as u16) < area.width) {
        put_right(buffer, (area.x + used, area.y, area.width - used), other, screen.theme.dim());
    }
    (shown, area.y + 1)
}

/// Holders, largest first; `alone` if the other list is not shown.
pub(super) fn holders(buffer: &mut Buffer, area: Rect, screen: &Screen, alone: bool) {
    let (history, moment, theme) = (&screen.browser.history, screen.browser.moment(), screen.theme);
    let title = if history.recording.scopes_are_stacks { "Held by line" } else { "Held by module" };
    let other = alone.then_some("Tab: segments");
    let (shown, top) = heading(buffer, area, (screen, List::Holders), moment.holders.len(), (title, other));
    let wide = area.width >= 60;
    let category_width = if wide { 16 } else { 10 };
    for (y, holder) in (top..).zip(&moment.holders[shown]) {
        let style = if holder.found { theme.found() } else { theme.plain() };
        put_right(buffer, (area.x, y, 10), &short(holder.bytes), style);
        let mut x = area.x + 11;
        if wide {
            let share = holder.bytes as f64 / moment.allocated_bytes.max(1) as f64;
            put_right(buffer, (x, y, 5), &whole_percent(share), theme.dim());
            x += 6;
        }
        let category = format!("■ {}", history.category_name(holder.category));
        put(buffer, (x, y, category_width + 2), &category, theme.plain());
        put(buffer, (x, y, 1), "■", theme.category(history, holder.category));
        x += category_width + 3;
        let many = match holder.blocks {
            1 => String::new(),
            n if wide => format!(", {}", counted(n, "block")),
            n => format!(" ×{n}"),
        };
        put(buffer, (x, y, area.right() - x), &(history.holder_name(holder) + &many), style);
    }
}

/// Segments by address, each as a bar with its blocks and gaps.
pub(super) fn segments(buffer: &mut Buffer, area: Rect, screen: &Screen, alone: bool) {
    let (moment, theme) = (screen.browser.moment(), screen.theme);
    let title = if area.width >= 60 {
        let cached = moment.reserved_bytes.saturating_sub(moment.allocated_bytes).saturating_sub(moment.split_bytes);
        format!("Segments: {} free beside blocks, {} without a block", short(moment.split_bytes), short(cached))
    } else {
        "Segments".to_string()
    };
    let other = alone.then_some("Tab: holders");
    let (shown, top) = heading(buffer, area, (screen, List::Segments), moment.segments.len(), (&title, other));
    if moment.segments.is_empty() {
        put(buffer, (area.x, top, area.width), "none at this event", theme.dim());
    }
    for (y, segment) in (top..).zip(&moment.segments[shown]) {
        let mut x = area.x;
        if area.width >= 60 {
            put(buffer, (x, y, 15), &format!("{:#x}", segment.address), theme.dim());
            x += 16;
        }
        put_right(buffer, (x, y, 10), &short(segment.bytes), theme.plain());
        x += 11;
        let used = segment.used_bytes as f64 / segment.bytes.max(1) as f64;
        put_right(buffer, (x, y, 5), &whole_percent(used), theme.dim());
        x += 6;
        bar(buffer, (x, y, area.right() - x), segment, screen);
    }
}

fn bar(buffer: &mut Buffer, (x, y, width): (u16, u16, u16), segment: &Segment, screen: &Screen) {
    let cells = segment.cells(usize::from(width));
    for (x, cell) in (x..).zip(&cells) {
        let style = match cell.category {
            Some(category) => screen.theme.category(&screen.browser.history, category),
            None => screen.theme.dim(),
        };
        let style = if cell.found { style.patch(screen.theme.found()) } else { style };
        buffer.set_stringn(x, y, drawn(cell), 1, style);
    }
}

/// Formats a share. A small share is not shown as 0 %, and one below 1 is not shown as 100 %.
fn whole_percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent > 0.0 && percent < 1.0 => "<1 %".to_string(),
        percent if percent < 100.0 => format!("{:.0} %", percent.min(99.0)),
        percent => format!("{percent:.0} %"),
    }
}

/// Returns the character of a piece of a segment.
fn drawn(cell: &Cell) -> &'static str {
    match cell.used {
        used if used > 0.999 => "█",
        used if used > 0.5 => "▒",
        used if used > 0.0 => "░",
        _ => "·",
    }
}
