//! Zip archives as PyTorch writes them.

use std::io::{Read, Seek};

use zip::ZipArchive;
use zip::read::{ArchiveOffset, Config};
use zip::result::ZipResult;

/// Opens an archive that begins at the first byte of its file. Offsets in it then need no guess: the guess of the `zip` crate compares signatures, and takes
/// the second entry for the first where the directory's first entry is as long as the records at the archive's end (names of eight letters in a `.pt2`).
pub(crate) fn open<R: Read + Seek>(reader: R) -> ZipResult<ZipArchive<R>> {
    ZipArchive::with_config(Config { archive_offset: ArchiveOffset::Known(0) }, reader)
}
