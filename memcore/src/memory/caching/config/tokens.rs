//! Tokens of the settings, with PyTorch's quirks.
//!
//! `,` `:` `[` `]` are tokens, white space is removed everywhere, and the other characters form words. Separators are
//! skipped unchecked, so that a wrong one shows only in the words after it.

use crate::error::{Error, Result};

pub(super) struct Tokens<'a> {
    tokens: Vec<std::borrow::Cow<'a, str>>,
}

/// Creates an error about the settings.
pub(super) fn invalid(problem: impl Into<String>) -> Error {
    Error::invalid("allocator settings", problem)
}

impl Tokens<'_> {
    pub(super) fn split(text: &str) -> Tokens<'static> {
        let mut tokens: Vec<String> = Vec::new();
        let mut word = String::new();
        for c in text.chars() {
            match c {
                ',' | ':' | '[' | ']' => {
                    if !word.is_empty() {
                        tokens.push(std::mem::take(&mut word));
                    }
                    tokens.push(c.to_string());
                }
                c if c.is_ascii_whitespace() || c == '\x0b' => {}
                c => word.push(c),
            }
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        Tokens { tokens: tokens.into_iter().map(std::borrow::Cow::Owned).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn get(&self, index: usize) -> Result<&str> {
        self.tokens.get(index).map(AsRef::as_ref).ok_or_else(|| invalid("Index out of bounds in ConfigTokenizer"))
    }

    pub(super) fn boolean(&self, index: usize) -> Result<bool> {
        match self.get(index)? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(invalid(format!(
                "Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{other}'"
            ))),
        }
    }

    /// Reads a number like C's `strtoull`: a sign, then digits. Characters after them are ignored, and a negative
    /// number wraps.
    pub(super) fn unsigned(&self, index: usize) -> Result<u64> {
        let text = self.get(index)?;
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        let value: u64 = digits.parse().map_err(|_| invalid("stoull"))?;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// Reads a number like C's `strtod`: the longest prefix that is a number.
    pub(super) fn float(&self, index: usize) -> Result<f64> {
        let text = self.get(index)?;
        let ends = text.char_indices().map(|(start, c)| start + c.len_utf8()).rev();
        ends.filter_map(|end| text[..end].parse().ok()).next().ok_or_else(|| invalid("stod"))
    }
}
