//! The whole screen.

use lab::figures::short;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::screen::Screen;
use super::text::{put, put_right};
use super::{curve, help, lists};
use crate::render::{cut, grouped};
use crate::visible::visible;

/// The smallest screen.
const LEAST: (u16, u16) = (40, 12);
/// From this height on there is a line for categories and one for the axis.
const TALL: u16 = 18;
/// From this width on both lists are side by side.
const WIDE: u16 = 110;

/// Draws the screen.
pub(super) fn draw(buffer: &mut Buffer, screen: &Screen) {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("{}×{}: {}×{} are needed", area.width, area.height, LEAST.0, LEAST.1);
        return put(buffer, (area.x, area.y, area.width), &text, screen.theme.plain());
    }
    if screen.help {
        return help::draw(buffer, area, screen.theme);
    }
    let tall = area.height >= TALL;
    let head = if tall { 4 } else { 3 };
    let curve_rows = ((area.height - head - 2) * 2 / 5).clamp(3, 24);
    header(buffer, area, screen, tall);
    let axis = if tall { 2 } else { 1 };
    curve::draw(buffer, Rect { y: area.y + head, height: curve_rows + axis, ..area }, screen);
    let top = head + curve_rows + axis;
    let below = Rect { y: area.y + top, height: area.height - top - 1, ..area };
    if area.width >= WIDE {
        let half = area.width / 2;
        lists::holders(buffer, Rect { width: half - 1, ..below }, screen, false);
        lists::segments(buffer, Rect { x: below.x + half + 1, width: area.width - half - 1, ..below }, screen, false);
    } else {
        match screen.list {
            super::screen::List::Holders => lists::holders(buffer, below, screen, true),
            super::screen::List::Segments => lists::segments(buffer, below, screen, true),
        }
    }
    footer(buffer, Rect { y: area.bottom() - 1, height: 1, ..area }, screen);
}

/// Draws the moment in figures and words: memory, the place of the event, what happened, bytes by category.
fn header(buffer: &mut Buffer, area: Rect, screen: &Screen, tall: bool) {
    let (browser, theme) = (&screen.browser, screen.theme);
    let (history, moment) = (&browser.history, browser.moment());
    let row = |y: u16| (area.x, area.y + y, area.width);
    let figures = format!("{} allocated, {} reserved", short(moment.allocated_bytes), short(moment.reserved_bytes));
    let of = history.recording.limit.as_ref().map(|(_, bytes)| format!(" of {}", short(*bytes)));
    // A narrow screen has the limit at its curve only.
    let of = of.filter(|of| figures.len() + of.len() <= usize::from(area.width)).unwrap_or_default();
    let figures = figures + &of;
    put(buffer, row(0), &figures, theme.bold());
    let used = figures.chars().count() as u16 + 3;
    if used + 12 < area.width {
        let place = (area.x + used, area.y, area.width - used);
        put_right(buffer, place, &cut(&history.recording.name, usize::from(place.2)), theme.dim());
    }
    let event = format!("event {} of {}", grouped(browser.cursor().into()), grouped(history.len().into()));
    let place = history.place(browser.cursor()).map(|place| format!(", {place}")).unwrap_or_default();
    put(buffer, row(1), &(event + &place), theme.plain());
    let failed = history.failures.binary_search(&browser.cursor()).is_ok();
    let style = if failed { theme.limit().patch(theme.bold()) } else { theme.plain() };
    put(buffer, row(2), &history.happened(browser.cursor()), style);
    if tall {
        categories(buffer, row(3), screen);
    }
}

/// Draws as many categories as there is room for.
fn categories(buffer: &mut Buffer, (x, y, width): (u16, u16, u16), screen: &Screen) {
    let (history, moment) = (&screen.browser.history, screen.browser.moment());
    let mut used = 0;
    for &(category, bytes) in &moment.categories {
        let text = format!("■ {} {}", history.category_name(category), short(bytes));
        let len = visible(&text).chars().count() as u16;
        if used + len > width {
            return;
        }
        put(buffer, (x + used, y, width - used), &text, screen.theme.plain());
        put(buffer, (x + used, y, 1), "■", screen.theme.category(history, category));
        used += len + 2;
    }
}

/// Draws the text being typed, the message of the last key, or the keys.
fn footer(buffer: &mut Buffer, area: Rect, screen: &Screen) {
    let (place, theme) = ((area.x, area.y, area.width), screen.theme);
    if let Some(typed) = &screen.typed {
        // The end of a long text is shown.
        let room = usize::from(area.width).saturating_sub(2);
        let end: String = typed.chars().skip(typed.chars().count().saturating_sub(room)).collect();
        return put(buffer, place, &format!("/{end}▏"), theme.bold());
    }
    match screen.browser.said() {
        Some(said) => put(buffer, place, said, theme.bold()),
        None if area.width >= 76 => {
            let keys = "←→ event  ⇧ 1 %  PgDn step  p peak  o out of memory  / search  +- zoom  ? keys";
            put(buffer, place, keys, theme.dim());
        }
        None => put(buffer, place, "←→ event  p peak  / search  ? keys", theme.dim()),
    }
}
