//! Makes text from outside (files, paths, other processes) safe to show on a terminal.
//!
//! A control character can set a terminal's title, clear it, or hide its contents; a bidirectional one can show text in another order, and others are
//! not seen at all. None is printed: each is shown as its escape, `\u{1b}`. Our own colours carry a mark that input cannot know.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use lab::hidden::is_hidden;

/// Follows the escape character in our own sequences until they are printed; it differs in each process.
static MARK: LazyLock<String> = LazyLock::new(|| format!("{:016x}", RandomState::new().build_hasher().finish()));

const ESCAPE: char = '\u{1b}';

/// Returns a control sequence of our own, such as `1m` or `H`, which [`for_terminal`] passes on.
pub(crate) fn sequence(code: &str) -> String {
    format!("{ESCAPE}{}[{code}", *MARK)
}

/// Escapes everything hidden in a text.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    replaced(text, |c, out| out.extend(c.escape_unicode()))
}

/// Escapes everything hidden in JSON by JSON's own escapes: the values stay the same.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    replaced(text, |c, out| c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))))
}

fn replaced(text: &str, replace: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if is_hidden(c) { replace(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Prepares text for a terminal: like [`visible`], with our own sequences in force.
pub(crate) fn for_terminal(text: &str) -> Cow<'_, str> {
    if !text.contains(ESCAPE) {
        return visible(text);
    }
    let mut parts = text.split(ESCAPE);
    let mut out = visible(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        match part.strip_prefix(MARK.as_str()) {
            Some(ours) => out.push_str(&format!("{ESCAPE}{}", visible(ours))),
            None => out.extend(ESCAPE.escape_unicode().chain(visible(part).chars())),
        }
    }
    Cow::Owned(out)
}

/// Prepares a document for standard output, which may be a terminal. Data that is not text is passed on as it is.
pub(crate) fn document(contents: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(contents) else { return Cow::Borrowed(contents) };
    match if text.starts_with(['{', '[']) { json(text) } else { visible(text) } {
        Cow::Borrowed(_) => Cow::Borrowed(contents),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hidden_reaches_a_terminal() {
        let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J a\0b\r\u{9b}31m \u{202e}cba\u{2066} é☃\tx\n";
        let shown = "\\u{1b}]0;owned\\u{7}\\u{1b}[2J a\\u{0}b\\u{d}\\u{9b}31m \\u{202e}cba\\u{2066} é☃\tx\n";
        assert_eq!(visible(hostile), shown);
        assert_eq!(for_terminal(hostile), shown);
        assert_eq!(for_terminal(""), "");
        let mixed = format!("{hostile}{}red{}{hostile}", sequence("31m"), sequence("0m"));
        assert_eq!(for_terminal(&mixed), format!("{shown}\u{1b}[31mred\u{1b}[0m{shown}"));
    }

    #[test]
    fn a_sequence_without_the_mark_is_not_ours() {
        let forged = "\u{1b}0000000000000000[31m \u{1b}[31m";
        assert!(!for_terminal(forged).contains(ESCAPE));
    }

    #[test]
    fn json_keeps_its_values() {
        let value = serde_json::json!({ "\u{9b}a": "\u{1b}[2J\u{202e}\u{7f}", "b": ["\n"] });
        let text = value.to_string();
        let shown = json(&text);
        assert!(!shown.contains(is_hidden), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert_eq!(document(text.as_bytes()), shown.as_bytes());
        assert_eq!(document(&[0x80, 2, 0xff]), [0x80, 2, 0xff].as_slice());
        assert_eq!(document("a\u{7};b 1\n".as_bytes()), b"a\\u{7};b 1\n".as_slice());
    }
}
