//! A `.pt2` file as a zip archive: its entries by their names below the archive's own folder, and the positions of the weights' bytes.
//!
//! Nothing is unpacked: `torch.export.save` does not compress, and a compressed entry is refused. So no entry is larger than the file, whatever
//! size the entry claims.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use lab_base::error::{Error, Result};
use zip::ZipArchive;

use crate::zipped;

/// Maximum bytes of a JSON entry. The program of a network of thousands of layers has less.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// An open `.pt2` file, or what would be in one.
pub(super) struct Archive {
    path: PathBuf,
    held: Held,
    /// Folder that every entry's name begins with, with the `/` at its end; empty in an archive without such a folder.
    root: String,
}

/// Where the entries are.
enum Held {
    /// In a file: their numbers by their names.
    File { zip: Box<ZipArchive<BufReader<File>>>, entries: BTreeMap<String, usize> },
    /// In memory, by their names.
    Memory(BTreeMap<String, Vec<u8>>),
}

/// Position and length of an entry's bytes in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub start: u64,
    pub bytes: u64,
}

/// True if the path is a regular file that begins as a zip archive does; false if the file cannot be read.
pub(super) fn is_archive(path: &Path) -> bool {
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let mut magic = [0; 4];
    is_file && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"PK\x03\x04"
}

impl Archive {
    /// Opens the file and reads its directory.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the file: it is missing, is not a zip archive, or was not made by `torch.export.save`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let wrong = |problem: String| Error::usage(path.display().to_string(), problem);
        let metadata = path.metadata().map_err(|error| wrong(error.to_string()))?;
        if !metadata.is_file() {
            return Err(wrong("not a regular file".into()));
        }
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let zip = zipped::open(BufReader::new(file)).map_err(|error| wrong(error.to_string()))?;
        let names = zip.file_names().enumerate();
        let entries = names.filter_map(|(index, name)| Some((name.ok()?.into_owned(), index))).collect();
        let held = Held::File { zip: Box::new(zip), entries };
        let mut archive = Self { path: path.to_path_buf(), held, root: String::new() };
        archive.root = archive.find_root()?;
        let format = archive.text("archive_format", 64)?;
        if format.trim() != "pt2" {
            return Err(archive.error("archive_format", format!("says {:?}, not \"pt2\"", format.trim())));
        }
        if let Ok(order) = archive.text("byteorder", 64)
            && order.trim() != "little"
        {
            return Err(archive.error("byteorder", format!("says {:?}; only \"little\" is read", order.trim())));
        }
        Ok(archive)
    }

    /// Entries that are in memory. `name` stands for the path in errors.
    pub(super) fn of_entries(name: &str, entries: BTreeMap<String, Vec<u8>>) -> Self {
        Self { path: name.into(), held: Held::Memory(entries), root: String::new() }
    }

    /// Names of the entries, in order.
    fn names(&self) -> Box<dyn Iterator<Item = &String> + '_> {
        match &self.held {
            Held::File { entries, .. } => Box::new(entries.keys()),
            Held::Memory(entries) => Box::new(entries.keys()),
        }
    }

    /// Returns the folder that holds `archive_format`, with the `/` at its end.
    fn find_root(&self) -> Result<String> {
        const KNOWN: &str = "archive_format";
        let root = self.names().find_map(|name| {
            let root = name.strip_suffix(KNOWN)?;
            (root.is_empty() || root.ends_with('/')).then(|| root.to_string())
        });
        let has = |name: &str| self.names().any(|entry| entry.ends_with(name));
        root.ok_or_else(|| {
            let problem = if has("data.pkl") {
                "was made by torch.save, not by torch.export.save"
            } else if has("serialized_exported_program.json") || has("version") {
                "an export of torch 2.8 or earlier; export it once more with torch 2.9 or later"
            } else {
                "a zip archive without an entry archive_format; torch.export.save of torch 2.9 or later writes one"
            };
            Error::usage(self.path.display().to_string(), problem)
        })
    }

    /// Returns an error that names the file and the entry.
    pub(super) fn error(&self, entry: &str, problem: impl Into<String>) -> Error {
        Error::usage(format!("{}: {}{entry}", self.path.display(), self.root), problem)
    }

    /// Returns the names of the entries below `folder`, without `folder` itself.
    pub(super) fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        let inside = move |name: &'a String| name.strip_prefix(self.root.as_str())?.strip_prefix(folder);
        self.names().filter_map(inside)
    }

    /// True if the archive has this entry.
    pub(super) fn has(&self, entry: &str) -> bool {
        let name = format!("{}{entry}", self.root);
        match &self.held {
            Held::File { entries, .. } => entries.contains_key(&name),
            Held::Memory(entries) => entries.contains_key(&name),
        }
    }

    /// Returns the position and length of an entry's bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the entry: it is missing, is compressed, or reaches beyond the end of the file.
    pub(super) fn extent(&mut self, entry: &str) -> Result<Extent> {
        let name = format!("{}{entry}", self.root);
        let end = self.path.metadata().map_or(0, |metadata| metadata.len());
        let found = match &mut self.held {
            Held::Memory(_) => Err("is not in a file".to_string()),
            Held::File { entries, .. } if !entries.contains_key(&name) => Err("is missing".to_string()),
            Held::File { zip, entries } => {
                zip.by_index_raw(entries[&name]).map_err(|error| error.to_string()).and_then(|file| {
                    if file.compression() != zip::CompressionMethod::Stored {
                        return Err("is compressed; torch.export.save stores entries as they are".into());
                    }
                    let start = file.data_start().ok_or("has no data")?;
                    let bytes = file.size();
                    match start.checked_add(bytes) {
                        Some(last) if last <= end => Ok(Extent { start, bytes }),
                        _ => Err(format!("claims {bytes} bytes, which the file does not have")),
                    }
                })
            }
        };
        found.map_err(|problem| self.error(entry, problem))
    }

    /// Reads an entry as UTF-8 text.
    ///
    /// # Errors
    /// Those of [`extent`](Self::extent); an entry that is longer than `most` bytes or is not UTF-8.
    fn text(&mut self, entry: &str, most: u64) -> Result<String> {
        if let Held::Memory(entries) = &self.held {
            let bytes = entries.get(entry).cloned().ok_or_else(|| self.error(entry, "is missing"))?;
            return String::from_utf8(bytes).map_err(|_| self.error(entry, "not text in UTF-8"));
        }
        let extent = self.extent(entry)?;
        if extent.bytes > most {
            return Err(self.error(entry, format!("is {} bytes long; {most} at most are read", extent.bytes)));
        }
        let bytes = read(&self.path, extent)?;
        String::from_utf8(bytes).map_err(|_| self.error(entry, "not text in UTF-8"))
    }

    /// Reads an entry as JSON.
    ///
    /// # Errors
    /// Those of [`extent`](Self::extent); JSON that does not match the schema, with line and column.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self, entry: &str) -> Result<T> {
        let text = self.text(entry, MAX_JSON_BYTES)?;
        serde_json::from_str(&text).map_err(|error| self.error(entry, error.to_string()))
    }
}

/// Reads these bytes of a file.
///
/// # Errors
/// [`Error::Usage`] naming the file, if it can no longer be read.
pub(super) fn read(path: &Path, extent: Extent) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::usage(path.display().to_string(), error.to_string());
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(extent.start)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(extent.bytes).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 != extent.bytes {
        return Err(Error::usage(path.display().to_string(), "has become shorter"));
    }
    Ok(bytes)
}
