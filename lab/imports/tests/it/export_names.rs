//! An export is read whatever its file's name: PyTorch puts that name before every entry of the archive.

use lab_imports::exported;

use crate::EXPORTS;
use crate::archives::{entries, unpacked};

/// An archive as PyTorch writes it: entries as they are, then the directory, and a record of 64 bits at the end even of a small file.
fn as_pytorch_writes(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let (at, crc, len) = (out.len() as u32, crc32(bytes), bytes.len() as u32);
        // Version, flags, method, time, date; then sum, sizes, length of the name, no further field.
        let mut common = Vec::new();
        for part in [0u16, 0x800, 0, 0, 0] {
            common.extend(part.to_le_bytes());
        }
        for part in [crc, len, len] {
            common.extend(part.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(bytes);
        directory.extend(b"PK\x01\x02\x00\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, bytes, count) = (out.len() as u64, directory.len() as u64, entries.len() as u64);
    let end = start + bytes;
    out.extend(directory);
    out.extend(b"PK\x06\x06");
    out.extend(44u64.to_le_bytes());
    out.extend([0; 12]);
    for part in [count, count, bytes, start] {
        out.extend(part.to_le_bytes());
    }
    out.extend(b"PK\x06\x07");
    out.extend(0u32.to_le_bytes());
    out.extend(end.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(b"PK\x05\x06\x00\x00\x00\x00");
    for part in [count as u16, count as u16] {
        out.extend(part.to_le_bytes());
    }
    for part in [bytes as u32, start as u32] {
        out.extend(part.to_le_bytes());
    }
    out.extend(0u16.to_le_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn a_name_of_any_length_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let gz = std::fs::read(format!("{EXPORTS}/mlp.pt2.gz")).unwrap();
    let original = std::fs::read(unpacked(&gz, folder.path(), "original")).unwrap();
    let mut inside = entries(&original);
    let root = inside[0].0.split_once('/').unwrap().0.to_string();
    // PyTorch writes the weights first.
    let first = inside.iter().position(|(name, _)| name.ends_with("/data/weights/weight_0")).unwrap();
    inside.swap(0, first);
    for length in 1..=40 {
        let name: String = (0..length).map(|at| char::from(b'a' + at % 26)).collect();
        let rename = |(entry, bytes): &(String, Vec<u8>)| (entry.replacen(&root, &name, 1), bytes.clone());
        let renamed: Vec<_> = inside.iter().map(rename).collect();
        let path = folder.path().join(format!("{name}.pt2"));
        std::fs::write(&path, as_pytorch_writes(&renamed)).unwrap();
        if let Err(error) = exported::load(&path, None) {
            panic!("{length}: {error}");
        }
    }
}
