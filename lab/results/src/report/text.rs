//! Text of a page: escaped, with bytes in binary units and the exact number on hover.

use std::fmt::Write;

use lab_base::figures::{self, short};
use lab_base::hidden::is_hidden;

/// Characters of one text that a page shows: a page stays small whatever a message holds.
const MOST: usize = 20_000;

/// Escapes text between tags or in a quoted attribute: nothing in it is markup. Of a very long one the beginning is shown, and how much is left out.
pub(super) fn escaped(text: &str) -> String {
    let cut = beginning(text, MOST).len();
    let mut out = String::with_capacity(cut);
    for c in text[..cut].chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in a page, however they are written.
            c if is_hidden(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    if cut < text.len() {
        let _ = write!(out, "… ({} more bytes are not shown)", grouped((text.len() - cut) as u64));
    }
    out
}

/// Returns the first characters of a text.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(at, _)| &text[..at])
}

/// Formats bytes, with the exact number on hover and for screen readers.
pub(super) fn bytes(bytes: u64) -> String {
    format!("<span class=\"n\" title=\"{} bytes\">{}</span>", grouped(bytes), short(bytes))
}

/// Formats a difference in bytes, signed.
pub(super) fn signed(difference: i64) -> String {
    let sign = match difference {
        0 => "",
        1.. => "+",
        _ => "−",
    };
    let size = difference.unsigned_abs();
    format!("<span class=\"n\" title=\"{sign}{} bytes\">{sign}{}</span>", grouped(size), short(size))
}

/// Formats a number in groups of three digits, with thin spaces.
pub(super) fn grouped(number: u64) -> String {
    figures::grouped(number, '\u{202f}')
}

/// Formats `n thing` or `n things`.
pub(super) fn counted(n: usize, thing: &str) -> String {
    format!("{} {thing}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// Writes a heading of this level.
pub(super) fn heading(out: &mut String, level: usize, text: &str) {
    let _ = writeln!(out, "<h{level}>{}</h{level}>", escaped(&unbroken(text)));
}

/// Units that stay with their number.
const UNITS: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "%", "ms", "s"];

/// A text whose lines do not end within a number, or between it and its unit: `1 024`, `23.5 GiB`.
pub(super) fn unbroken(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(' ') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.push_str(before);
        let word = after.split(|c: char| !c.is_alphanumeric() && c != '%').next().unwrap_or_default();
        let follows = UNITS.contains(&word) || word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = before.ends_with(|c: char| c.is_ascii_digit());
        out.push(if is_number && follows { '\u{a0}' } else { ' ' });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        let hostile = "</script><img src=x onerror='alert(1)'>\u{0}&\"";
        let safe = escaped(hostile);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{0}']), "{safe}");
        assert!(safe.starts_with("&lt;/script&gt;&lt;img") && safe.ends_with("\u{fffd}&amp;&quot;"), "{safe}");
    }

    #[test]
    fn a_line_does_not_end_within_a_number() {
        let text = "batch 8 × 1 024 tokens: 23.5 GiB (4 %), 12 steps, 1 0244 B, 12 345 678 bytes";
        let whole = "batch 8 × 1\u{a0}024 tokens: 23.5\u{a0}GiB (4\u{a0}%), 12 steps, 1 0244\u{a0}B, 12\u{a0}345\u{a0}678 bytes";
        assert_eq!(unbroken(text), whole);
    }

    #[test]
    fn bytes_have_both_forms() {
        let span = "<span class=\"n\" title=\"1\u{202f}610\u{202f}612\u{202f}736 bytes\">1.5 GiB</span>";
        assert_eq!(bytes(3 << 29), span);
        assert_eq!(signed(-512), "<span class=\"n\" title=\"−512 bytes\">−512 B</span>");
    }
}
