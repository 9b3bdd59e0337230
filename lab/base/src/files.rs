//! Reading files that people write.

use std::path::Path;

use crate::error::{Error, Result};

/// The text of a regular file of at most so many bytes; `what` it ought to be, for messages.
///
/// # Errors
/// [`Error::Usage`] naming the file: not there, longer, no text; a pipe or a device, of which nobody knows where it ends.
pub fn text(path: &Path, most_bytes: u64, what: &str) -> Result<String> {
    let unreadable = |_| Error::usage(path.display().to_string(), "not text in UTF-8");
    String::from_utf8(bytes(path, most_bytes, what)?).map_err(unreadable)
}

/// The same of any contents.
///
/// # Errors
/// As [`text`], of which nothing need be text.
pub fn bytes(path: &Path, most_bytes: u64, what: &str) -> Result<Vec<u8>> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| Error::usage(name.clone(), error.to_string());
    // Looked at before it is opened: opening a pipe would wait for a writer.
    let metadata = path.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Error::usage(name, "not a regular file"));
    }
    let bytes = metadata.len();
    if bytes > most_bytes {
        return Err(Error::usage(name, format!("is {bytes} bytes long; {what} has at most {most_bytes}")));
    }
    std::fs::read(path).map_err(unreadable)
}
