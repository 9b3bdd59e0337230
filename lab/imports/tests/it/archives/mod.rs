//! Exports of PyTorch as files, complete and modified.

// Each test uses a part of this module.
#![allow(dead_code)]

pub(crate) mod compared;

use std::io::Read;
use std::path::{Path, PathBuf};

/// Writes `NAME.pt2` into a folder, from a compressed export.
pub(crate) fn unpacked(gz: &[u8], folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(format!("{name}.pt2"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(gz).read_to_end(&mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The entries of an archive, by name.
pub(crate) fn entries(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let count = zip.len();
    let entry = |i: usize| {
        let mut file = zip.by_index(i).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (file.name().unwrap().into_owned(), bytes)
    };
    (0..count).map(entry).collect()
}

/// Makes an archive of these entries, uncompressed.
pub(crate) fn archive(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in entries {
        writer.start_file(name.as_str(), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}
