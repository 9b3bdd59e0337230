//! The script that a traceback begins with.

/// Finds the outermost line of a program's own file in a text with single blanks: `File "/home/me/train.py", line 7, in <module>`. Returns the file as a
/// shell reads it. `None` without one, and for a file of Windows, on which nothing is rehearsed.
pub(super) fn find(text: &str) -> Option<String> {
    let last = text.rfind("Traceback (most recent call last)").unwrap_or(0);
    module(&text[last..]).or_else(|| module(text)).map(quoted)
}

fn module(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("File \"") {
        let (file, after) = after.split_once('"')?;
        let line = after.strip_prefix(", line ").map(|line| line.trim_start_matches(|c: char| c.is_ascii_digit()));
        let outermost = line.is_some_and(|line| line.starts_with(", in <module>"));
        if outermost && is_own(file) {
            return Some(file);
        }
        rest = after;
    }
    None
}

pub(super) fn is_own(file: &str) -> bool {
    let installed = ["site-packages", "dist-packages", "/lib/python", "/lib64/python"];
    let readable = file.len() < 300 && !file.contains(['\\', '<']) && !file.chars().any(char::is_control);
    file.ends_with(".py") && readable && !installed.iter().any(|part| file.contains(part))
}

fn quoted(file: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-+,@%".contains(c);
    if file.chars().all(plain) { file.to_string() } else { format!("'{}'", file.replace('\'', "'\\''")) }
}
