//! Results for people: everything fits 80 columns.

pub(crate) mod bytes;
pub(crate) mod chart;
pub(crate) mod markdown;
pub(crate) mod oom;
pub(crate) mod sections;
pub(crate) mod style;
pub(crate) mod table;
mod tries;

/// Columns of a terminal that everything fits in.
pub(crate) const WIDTH: usize = 80;

/// Breaks text into lines of at most `width` characters, all but the first indented by `indent` (which counts).
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += len;
    }
    out
}

/// A number in groups of three digits: `124 439 808`.
pub(crate) fn grouped(n: u64) -> String {
    lab::figures::grouped(n, ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_at_words() {
        assert_eq!(wrapped("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrapped("unbreakably-long", 4, 0), "unbreakably-long");
        assert_eq!(wrapped("", 4, 0), "");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 124_439_808].map(grouped), ["0", "999", "1 000", "124 439 808"]);
    }
}
