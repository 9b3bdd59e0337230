//! Files that were dropped on the page: in a private folder that goes with the server, the oldest first.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// The largest file. Bytes.
pub(super) const MAX_FILE: usize = 256 << 20;

/// Files that are kept.
const MOST: usize = 16;

/// Bytes of all files together.
const MAX_TOTAL: usize = 1 << 30;

/// The files that were dropped, by number.
pub(super) struct Dropped {
    folder: TempDir,
    last: u64,
    kept: VecDeque<(u64, usize)>,
}

impl Dropped {
    /// Makes the folder, which nobody else may read.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { folder: tempfile::Builder::new().prefix("vramlab-ui-").tempdir()?, last: 0, kept: VecDeque::new() })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps a file, and drops the oldest where there are too many. Returns its name below the folder.
    ///
    /// # Errors
    /// A name or a size that no network has; a full disk.
    pub(super) fn keep(&mut self, name: &str, contents: &[u8]) -> Result<String, String> {
        if !is_name(name) {
            return Err("a config.json or a .pt2 is expected".into());
        }
        if contents.len() > MAX_FILE {
            return Err(format!("larger than {} MiB", MAX_FILE >> 20));
        }
        while self.kept.len() >= MOST
            || self.kept.iter().map(|(_, size)| size).sum::<usize>() + contents.len() > MAX_TOTAL
        {
            let Some((oldest, _)) = self.kept.pop_front() else { break };
            // A folder that stays takes room, and nothing else.
            let _ = fs::remove_dir_all(self.folder().join(oldest.to_string()));
        }
        self.last += 1;
        let place = self.folder().join(self.last.to_string());
        let written = fs::create_dir(&place).and_then(|()| fs::write(place.join(name), contents));
        written.map_err(|error| format!("the file was not kept: {error}"))?;
        self.kept.push_back((self.last, contents.len()));
        Ok(format!("{}/{name}", self.last))
    }
}

/// True for a plain name of a network's file.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_plain = name.len() <= 100 && !name.starts_with('.') && name.bytes().all(plain);
    is_plain && (name.ends_with(".json") || name.ends_with(".pt2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_go() {
        let mut files = Dropped::new().unwrap();
        let names: Vec<String> = (0..=MOST).map(|_| files.keep("config.json", b"{}").unwrap()).collect();
        assert_eq!((names[0].as_str(), names[MOST].as_str()), ("1/config.json", "17/config.json"));
        assert!(!files.folder().join(&names[0]).exists() && files.folder().join(&names[MOST]).is_file());
        for wrong in ["", "x", "../config.json", "a/b.json", "a\\b.json", ".json", "a\0.json", "net.toml"] {
            assert!(files.keep(wrong, b"{}").is_err(), "{wrong:?}");
        }
        let folder = files.folder().to_path_buf();
        drop(files);
        assert!(!folder.exists());
    }
}
