//! Reading files that are not trusted: in parts, each checked against what the file can hold.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::error::{DataError, Result};

/// The largest factor by which deflate can expand data: 258 bytes from 2 bits. Source: zlib's technical details (<https://zlib.net/zlib_tech.html>),
/// rounded up.
const MAX_INFLATION: u64 = 1032;

/// Limit for uncompressed data, whatever the file claims: a small file can inflate to more than a machine has.
const MAX_INFLATED_BYTES: u64 = 4 << 30;

/// A file (or bytes in memory), perhaps compressed with gzip, read from front to back.
pub(super) struct Source<'a> {
    path: PathBuf,
    reader: Box<dyn Read + 'a>,
    /// Bytes read so far.
    offset: u64,
    /// The most bytes that can follow; exact unless compressed.
    limit: u64,
}

impl Source<'static> {
    /// Opens a file. Its first bytes, not its name, tell whether it is compressed.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |source| DataError::Io { path: path.to_path_buf(), source };
        // Checked before opening: opening a pipe would wait for a writer.
        if !path.metadata().map_err(io)?.is_file() {
            return Err(io(std::io::Error::other("not a regular file")));
        }
        let mut file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let mut start = [0; 2];
        let compressed = read_up_to(&mut file, &mut start).map_err(io)? == 2 && start == GZIP_MAGIC;
        file.rewind().map_err(io)?;
        Ok(Source::new(path, BufReader::new(file), len, compressed))
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

impl<'a> Source<'a> {
    /// Reads compressed bytes in memory; `path` names them in errors.
    pub(super) fn from_gzip(path: &Path, bytes: &'a [u8]) -> Self {
        Source::new(path, bytes, bytes.len() as u64, true)
    }

    fn new(path: &Path, reader: impl Read + 'a, len: u64, compressed: bool) -> Self {
        let (reader, limit): (Box<dyn Read + 'a>, u64) = if compressed {
            let limit = len.saturating_mul(MAX_INFLATION).min(MAX_INFLATED_BYTES);
            (Box::new(MultiGzDecoder::new(reader)), limit)
        } else {
            (Box::new(reader), len)
        };
        Source { path: path.to_path_buf(), reader, offset: 0, limit }
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns an error about the contents at `offset`.
    pub(super) fn wrong(&self, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> DataError {
        DataError::Format { path: self.path.clone(), offset, expected: expected.into(), found: found.into() }
    }

    /// Reads the next `count` bytes; `what` describes them in messages.
    ///
    /// # Errors
    /// If fewer are left. Nothing is allocated for bytes that do not exist.
    pub(super) fn take(&mut self, count: u64, what: &str) -> Result<Vec<u8>> {
        let start = self.offset;
        let bytes = self.up_to(count, what)?;
        match bytes.len() as u64 {
            len if len == count => Ok(bytes),
            len => Err(self.wrong(start, format!("{count} bytes of {what}"), format!("the end after {len}"))),
        }
    }

    /// Reads the next `count` bytes, or as many as exist.
    pub(super) fn up_to(&mut self, count: u64, what: &str) -> Result<Vec<u8>> {
        let possible = self.limit.saturating_sub(self.offset);
        let mut bytes = Vec::new();
        // The reader grows the vector as data arrives, so that a false header costs nothing.
        let read = self.reader.by_ref().take(count.min(possible)).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match read {
            Ok(_) => Ok(bytes),
            Err(error) => Err(self.wrong(self.offset, format!("readable data ({what})"), error.to_string())),
        }
    }

    /// Reads the next four bytes as a big-endian number.
    pub(super) fn take_u32_be(&mut self, what: &str) -> Result<u32> {
        let bytes = self.take(4, what)?;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    /// Checks that nothing follows; for compressed data this also checks the checksum.
    pub(super) fn finish(&mut self, what: &str) -> Result<()> {
        let end = self.offset;
        let mut byte = [0];
        match read_up_to(&mut self.reader, &mut byte) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.wrong(end, format!("the end, after {what}"), "more bytes")),
            Err(error) => Err(self.wrong(end, format!("the end, after {what}"), error.to_string())),
        }
    }
}

/// Fills `buffer` as far as the data reaches. Returns the number of bytes read.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
