//! Opens files of snapshots.

use std::io::Read;
use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::input;

use super::model::Snapshot;
use super::parse_error::{self, ParseError};
use super::source::Source;
use super::value::Document;
use super::{decode, json_read, opcodes, unpickle};
use crate::unpacked::{GZIP, Unpacked};

/// Largest file that is read, in bytes (unpacked, if it is packed).
pub const MAX_BYTES: u64 = u32::MAX as u64;

/// Format of a snapshot's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Python's pickle.
    Pickle,
    /// JSON of the same structure.
    Json,
}

impl Document {
    /// Reads a pickle or JSON, gzipped or not, or what `torch.save` wrote.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the file and, where something in it is wrong, the byte.
    pub fn open(path: &Path) -> Result<(Self, Format)> {
        let name = input::name(path);
        let cannot = |error: std::io::Error| Error::usage(&name, error.to_string());
        Self::read(&name, input::open(path).map_err(cannot)?)
    }

    /// Reads a pickle or JSON; errors call it `name`.
    pub fn read(name: &str, mut reader: impl Read) -> Result<(Self, Format)> {
        let mut head = [0; 2];
        let mut there = 0;
        while there < 2 {
            match reader.read(&mut head[there..]) {
                Ok(0) => break,
                Ok(read) => there += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::usage(name, error.to_string())),
            }
        }
        let whole = head[..there].chain(reader);
        let read = if head == GZIP {
            read(&mut Source::new(Unpacked::new(whole), MAX_BYTES))
        } else {
            read(&mut Source::new(whole, MAX_BYTES))
        };
        read.map_err(|error| error.error(name))
    }

    /// Checks that the document is a snapshot; errors call it `name`.
    pub fn check(&self, name: &str) -> Result<()> {
        decode::without_texts(self).map(drop).map_err(|error| error.error(name))
    }

    /// Decodes the document; errors call it `name`.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the file and the byte.
    pub fn into_snapshot(self, name: &str) -> Result<Snapshot> {
        decode::decode(self).map_err(|error| error.error(name))
    }
}

impl Snapshot {
    /// Reads a pickle or JSON, gzipped or not.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the file and, where something in it is wrong, the byte.
    pub fn open(path: &Path) -> Result<Self> {
        let (document, _) = Document::open(path)?;
        document.into_snapshot(&path.display().to_string())
    }

    /// Reads a pickle or JSON; errors call it `name`.
    pub fn read(name: &str, reader: impl Read) -> Result<Self> {
        let (document, _) = Document::read(name, reader)?;
        document.into_snapshot(name)
    }
}

/// How an archive of zip begins.
const ARCHIVE: [u8; 4] = *b"PK\x03\x04";

/// Moves to the pickle in a file of `torch.save`: the first entry of an archive, `NAME/data.pkl`, not compressed.
fn to_saved_pickle<R: Read>(source: &mut Source<R>) -> parse_error::Result<()> {
    let problem = |problem: &str| Err(ParseError::new(0, problem));
    if source.array("the head of an archive")? != ARCHIVE {
        return problem("neither a pickle of protocol 2 to 5 nor JSON nor an archive");
    }
    let rest: [u8; 26] = source.array("the head of an archive")?;
    let number = |at: usize| usize::from(u16::from_le_bytes([rest[at], rest[at + 1]]));
    let (method, name, extra) = (number(4), number(22), number(24));
    let is_pickle = source.take(name, "the name of an entry")?.ends_with(b"/data.pkl");
    if method != 0 || !is_pickle {
        return problem("an archive that torch.save did not make");
    }
    source.take(extra, "the head of an entry").map(drop)
}

/// Tells the format by the first byte.
fn read<R: Read>(source: &mut Source<R>) -> parse_error::Result<(Document, Format)> {
    match source.peek()? {
        Some(b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n') => Ok((json_read::read(source)?, Format::Json)),
        Some(opcodes::PROTO) => Ok((unpickle::read(source)?, Format::Pickle)),
        Some(b'P') => {
            to_saved_pickle(source)?;
            Ok((unpickle::read_first(source)?, Format::Pickle))
        }
        _ => Err(ParseError::new(0, "neither a pickle of protocol 2 to 5 nor JSON")),
    }
}
