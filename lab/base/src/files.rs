//! Reading files that people write, and telling whether an open one is still in its place.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::{Error, Result};

/// Endings of files that have a network's weights.
const WEIGHTS: [&str; 6] = ["safetensors", "bin", "pt", "pth", "ckpt", "gguf"];

/// Reads a regular file of at most `most_bytes` bytes as text. `what` says in messages what the file should be.
///
/// # Errors
/// [`Error::Usage`] naming the file: it does not exist, is longer, or is not text. A pipe or a device is refused too, because its end is not known.
pub fn text(path: &Path, most_bytes: u64, what: &str) -> Result<String> {
    let is_weights = path.extension().is_some_and(|ending| WEIGHTS.iter().any(|known| ending == *known));
    let problem = match is_weights {
        true => "weights do not say what the network is; name its config.json",
        false => "not text in UTF-8",
    };
    let unreadable = |_| Error::usage(path.display().to_string(), problem);
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

/// True if the open file is still the one at `path`, which another process may have removed or replaced.
///
/// # Errors
/// Those of the system, but for a path at which there is nothing.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::metadata(path) {
        Ok(now) => Ok(identity(now) == identity(file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same on other systems, where an open file cannot be removed.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_lead_to_their_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let problem = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, [0x80, 0xff]).unwrap();
            text(&path, 100, "a network").unwrap_err().to_string()
        };
        assert!(problem("model.safetensors").ends_with("weights do not say what the network is; name its config.json"));
        assert!(problem("model.json").ends_with("not text in UTF-8"));
    }
}
