//! What a run ends with: the peak as one bar, memory over the steps, and who held most.

use memcore::memory::{Category, CategoryBytes};

use super::sections::shortened;
use super::style::Style;
use super::{WIDTH, bytes, chart};
use crate::commands::outcome::Outcome;

/// Marks of the categories in the bar, by their place in it: told apart without colour.
const MARKS: [char; Category::COUNT] = ['█', '▓', '▒', '░', '▚', '≡', '=', '·'];
/// Holders that are named.
const HOLDERS: usize = 4;
/// Characters of a holder's bar, and of its name.
const BAR: usize = 24;
const NAME: usize = 28;
/// Width of a number of bytes.
const FIGURE: usize = 26;

/// The picture; nothing where nothing was allocated.
pub(crate) fn text(outcome: &Outcome, style: Style) -> String {
    let peak = &outcome.result.peak;
    if peak.allocated_bytes == 0 {
        return String::new();
    }
    let mut out = format!("{}\n", style.bold(&format!("The peak: {}", bytes::both(peak.allocated_bytes))));
    out += &composition(&peak.by_category, style);
    out += &holders(&outcome.scopes, style);
    let rows = &outcome.result.rows;
    let points: Vec<chart::Point> = rows
        .iter()
        .map(|row| chart::Point { allocated: row.allocated, peak: row.phase_peak_allocated, reserved: row.reserved })
        .collect();
    let label = |row: Option<&lab::record::Row>| row.map_or(String::new(), |row| row.label.clone());
    let drawn = chart::memory(&points, &label(rows.first()), &label(rows.last()));
    if drawn.is_empty() { out } else { format!("{out}\n{}\n{drawn}", style.bold("Memory over the run")) }
}

/// One bar as wide as the screen, and what its marks stand for, most first.
fn composition(by_category: &CategoryBytes, style: Style) -> String {
    let total: u64 = by_category.iter().sum();
    let mut categories: Vec<Category> =
        Category::ALL.into_iter().filter(|category| by_category[*category as usize] > 0).collect();
    categories.sort_by_key(|category| std::cmp::Reverse(by_category[*category as usize]));
    let mark = |place: usize, count: usize| -> String {
        let category = categories[place] as usize;
        style.category(category, &MARKS[place].to_string().repeat(count))
    };
    let (mut bar, mut before, mut drawn) = (String::new(), 0, 0);
    for (place, category) in categories.iter().enumerate() {
        before += by_category[*category as usize];
        let end = ((before as f64 / total as f64) * WIDTH as f64).round() as usize;
        if end > drawn {
            bar += &mark(place, end - drawn);
            drawn = end;
        }
    }
    let mut legend = String::new();
    let mut used = 0;
    for (place, category) in categories.iter().enumerate() {
        let share = 100.0 * by_category[*category as usize] as f64 / total as f64;
        let name = format!("{} {share:.1} %", category.name().replace('_', " "));
        let width = name.chars().count() + 4;
        if used > 0 && used + width - 2 > WIDTH {
            legend.truncate(legend.trim_end().len());
            legend.push('\n');
            used = 0;
        }
        legend += &format!("{} {name}  ", mark(place, 1));
        used += width;
    }
    format!("{bar}\n{}\n", legend.trim_end())
}

/// The modules that held most at the peak, each with a bar as long as its share of the largest.
fn holders(scopes: &[(String, CategoryBytes)], style: Style) -> String {
    let held = |bytes: &CategoryBytes| bytes.iter().sum::<u64>();
    let Some(most) = scopes.iter().map(|(_, bytes)| held(bytes)).max().filter(|_| scopes.len() > 1) else {
        return String::new();
    };
    let mut out = format!("\n{}\n", style.bold("Who held most of it"));
    // Of figures that are wider than usual the bars make room.
    let width = bytes::both(most).chars().count().max(FIGURE);
    let longest = (BAR + FIGURE).saturating_sub(width).max(1);
    for (path, by_category) in scopes.iter().take(HOLDERS) {
        let name = if path.is_empty() { "(outside the model)" } else { path };
        let bytes = held(by_category);
        let bar = "█".repeat(((bytes as f64 / most.max(1) as f64) * longest as f64).round().max(1.0) as usize);
        let largest = Category::ALL.into_iter().max_by_key(|c| by_category[*c as usize]);
        let bar_colored = style.category(largest.map_or(0, |category| category as usize), &bar);
        let rest = " ".repeat(longest.saturating_sub(bar.chars().count()));
        out += &format!("{:<NAME$} {bar_colored}{rest} {:>width$}\n", shortened(name), bytes::both(bytes));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(entries: &[(Category, u64)]) -> CategoryBytes {
        let mut bytes = CategoryBytes::default();
        entries.iter().for_each(|(category, n)| bytes[*category as usize] = *n);
        bytes
    }

    #[test]
    fn the_bar_is_as_wide_as_the_screen_and_its_parts_are_shares() {
        let held =
            bytes_of(&[(Category::Activation, 600), (Category::Parameter, 300), (Category::OptimizerState, 100)]);
        let text = composition(&held, Style::new(false));
        let (bar, legend) = text.split_once('\n').unwrap();
        assert_eq!(bar, format!("{}{}{}", "█".repeat(48), "▓".repeat(24), "▒".repeat(8)));
        assert_eq!(legend, "█ activation 60.0 %  ▓ parameter 30.0 %  ▒ optimizer state 10.0 %\n");
        assert!(!text.contains('\x1b') && composition(&held, Style::new(true)).contains('\x1b'));
    }

    #[test]
    fn all_categories_fit_the_screen() {
        let text = composition(&[1 << 40; Category::COUNT], Style::new(false));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.lines().next().map(|bar| bar.chars().count()), Some(WIDTH));
        assert!(Category::ALL.iter().all(|category| text.contains(&category.name().replace('_', " "))));
    }

    #[test]
    fn holders_are_named_by_their_ends() {
        let long = "model.".repeat(20) + "fc";
        let scopes =
            [(long, bytes_of(&[(Category::Activation, 1 << 30)])), (String::new(), bytes_of(&[(Category::Input, 1)]))];
        let text = holders(&scopes, Style::new(false));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains(".fc ██") && text.contains("1 GiB") && text.contains("(outside the model)"), "{text}");
        assert_eq!(holders(&scopes[..1], Style::new(false)), "");
    }
}
