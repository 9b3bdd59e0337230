//! Formats results for people: no line is longer than the terminal.

pub(crate) mod bytes;
pub(crate) mod chart;
pub(crate) mod markdown;
pub(crate) mod oom;
pub(crate) mod sections;
pub(crate) mod style;
pub(crate) mod table;
mod tries;

use std::io::{IsTerminal, stdout};

use style::Style;

/// Amount of detail, width and style of a shown result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Largest width of a line, in characters.
    pub width: usize,
    /// True to show also what few readers want: every table, every exact byte.
    pub full: bool,
    /// Style: with colours, or without.
    pub style: Style,
}

/// Width where none is known.
const USUAL: usize = 80;
/// Range of widths used: less cannot hold a table, more is hard to read along.
const NARROWEST: usize = 40;
const WIDEST: usize = 200;

impl View {
    /// View of standard output: as wide as the terminal, or as the variable COLUMNS says without a terminal.
    pub(crate) fn of_stdout(full: bool, style: Style) -> Self {
        let terminal = || stdout().is_terminal().then(terminal_size::terminal_size).flatten();
        let said = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
        let width = terminal().map(|(width, _)| usize::from(width.0)).or_else(said).unwrap_or(USUAL);
        Self { width: width.clamp(NARROWEST, WIDEST), full, style }
    }

    /// View of a document: all details, in 80 columns without colours.
    pub(crate) fn of_document() -> Self {
        Self { width: USUAL, full: true, style: Style::new(false) }
    }

    /// Formats figures in a text: exact bytes follow rounded ones only in full.
    fn figures(self, text: &str) -> String {
        if self.full { text.to_string() } else { lab::figures::rounded(text) }
    }

    /// Formats a heading, in as many lines as it needs.
    pub(crate) fn heading(self, text: &str, indent: usize) -> String {
        let lines = wrapped(&self.figures(text), self.width, indent);
        lines.lines().map(|line| format!("{}\n", self.style.bold(line))).collect()
    }
}

/// Breaks text into lines of at most `width` characters, all except the first indented by `indent` (which counts). A word that is longer than a line
/// is broken too.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in words(text) {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        // The glue becomes a space again.
        for c in word.chars().map(|c| if c == GLUE { ' ' } else { c }) {
            if used >= width.max(indent + 1) {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                used = indent;
            }
            out.push(c);
            used += 1;
        }
    }
    out
}

/// Stands for the space between a number and its unit while lines are broken.
const GLUE: char = '\u{1e}';
const UNITS: [&str; 8] = ["%", "B", "KiB", "MiB", "GiB", "TiB", "ms", "µs"];

/// Splits a text into words; a number and its unit are one word.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut words = text.split_whitespace().peekable();
    std::iter::from_fn(move || {
        let mut word = words.next()?.to_string();
        // A further group of three digits of a number: `124 439 808`.
        let is_group = |next: &&str| {
            let digits = next.trim_end_matches([',', ';', '.']);
            digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit())
        };
        let is_unit = |next: &&str| UNITS.contains(&next.trim_end_matches(|c: char| ".,;:)".contains(c)));
        while word.ends_with(|c: char| c.is_ascii_digit())
            && let Some(unit) = words.next_if(|next| is_unit(next) || is_group(next))
        {
            word.push(GLUE);
            word.push_str(unit);
        }
        Some(word)
    })
}

/// Cuts text to one line of `width` characters.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Formats a number in groups of three digits: `124 439 808`.
pub(crate) fn grouped(n: u64) -> String {
    lab::figures::grouped(n, ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_at_words() {
        assert_eq!(wrapped("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrapped("an unbroken word", 4, 1), "an\n unb\n rok\n en\n wor\n d");
        assert_eq!(wrapped("", 4, 0), "");
    }

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(wrapped("takes 12 MiB, 5 %", 9, 2), "takes\n  12 MiB,\n  5 %");
        assert_eq!(wrapped("takes 124 439 808 parameters", 18, 0), "takes 124 439 808\nparameters");
        assert_eq!(wrapped("B 12 apples", 4, 0), "B 12\nappl\nes");
    }

    #[test]
    fn a_line_is_cut_at_its_end() {
        assert_eq!([cut("one two", 7), cut("one two", 6), cut("one two", 5)], ["one two", "one t…", "one…"]);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 124_439_808].map(grouped), ["0", "999", "1 000", "124 439 808"]);
    }
}
