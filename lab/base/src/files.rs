//! Reading files that people write.

use std::path::Path;

use crate::error::{Error, Result};

/// Reads a regular file of at most `most_bytes` bytes as text. `what` says in messages what the file should be.
///
/// # Errors
/// [`Error::Usage`] naming the file: it does not exist, is longer, or is not text. A pipe or a device is refused too, because its end is not known.
pub fn text(path: &Path, most_bytes: u64, what: &str) -> Result<String> {
    let unreadable = |_| Error::usage(path.display().to_string(), "not text in UTF-8");
    String::from_utf8(bytes(path, most_bytes, what)?).map_err(unreadable)
}

/// Reads a regular file of at most `most_bytes` bytes, whatever its contents.
///
/// # Errors
/// Those of [`text`], except that the file need not be text.
pub fn bytes(path: &Path, most_bytes: u64, what: &str) -> Result<Vec<u8>> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| Error::usage(name.clone(), error.to_string());
    // Checked before opening: opening a pipe would wait for a writer.
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
