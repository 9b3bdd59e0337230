//! The innermost line of a traceback that is the user's.

use super::script::is_own;

/// Finds the innermost line of a user's own file in the last traceback of a text with single blanks: `train.py, line 9, in step`. `None` without one.
pub(super) fn innermost(text: &str) -> Option<String> {
    let mut rest = &text[text.rfind("Traceback (most recent call last)")?..];
    let mut found = None;
    while let Some((_, after)) = rest.split_once("File \"") {
        rest = after;
        let Some((file, after)) = after.split_once("\", line ") else { continue };
        let Some((number, after)) = after.split_once(", in ") else { continue };
        let function = after.split(' ').next().unwrap_or_default();
        let is_readable = number.len() < 8 && number.bytes().all(|byte| byte.is_ascii_digit()) && function.len() < 100;
        if is_readable && is_own(file) {
            let name = file.rsplit('/').next().unwrap_or(file);
            found = Some(format!("{name}, line {number}, in {function}"));
        }
    }
    found
}
