//! IDX files, good and bad, written to a temporary directory.

use std::fs;
use std::io::Write;

use tempfile::TempDir;

use super::*;
use crate::data::Split;

fn header(magic: u32, dims: &[u32]) -> Vec<u8> {
    std::iter::once(&magic).chain(dims).flat_map(|value| value.to_be_bytes()).collect()
}

fn images(len: u32, rows: u32, columns: u32) -> Vec<u8> {
    let mut bytes = header(IMAGES_MAGIC, &[len, rows, columns]);
    bytes.extend((0..len * rows * columns).map(|v| (v % 256) as u8));
    bytes
}

fn labels(len: u32) -> Vec<u8> {
    let mut bytes = header(LABELS_MAGIC, &[len]);
    bytes.extend((0..len).map(|v| (v % 7) as u8));
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A directory with five training and three test images of 2×3.
fn four_files() -> TempDir {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("train-images-idx3-ubyte", &images(5, 2, 3));
    write("train-labels-idx1-ubyte.gz", &gzip(&labels(5)));
    write("t10k-images.idx3-ubyte.gz", &gzip(&images(3, 2, 3)));
    write("t10k-labels-idx1-ubyte", &labels(3));
    directory
}

/// Reads a pair of files and returns the error without the directory's name.
fn error_of(image_bytes: &[u8], label_bytes: &[u8]) -> String {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x-images-idx3-ubyte");
    fs::write(&path, image_bytes).unwrap();
    fs::write(directory.path().join("x-labels-idx1-ubyte"), label_bytes).unwrap();
    let text = load_idx_file(&path).unwrap_err().to_string();
    text.replace(&format!("{}/", directory.path().display()), "")
}

#[test]
fn a_directory_comes_back_as_it_was_written() {
    let directory = four_files();
    let data = load_idx_directory(directory.path()).unwrap();
    assert_eq!((data.len(), data.input_dims(), data.n_classes()), (8, [1, 2, 3].as_slice(), 10));
    assert_eq!(data.split(Split::Train), [0, 1, 2, 3, 4]);
    assert_eq!(data.split(Split::Test), [5, 6, 7]);
    let expected: Vec<f32> = (0..30).chain(0..18).map(|v| v as f32 / 255.0).collect();
    assert_eq!(data.inputs(), expected);
    assert_eq!(data.targets(), &Targets::Classes(vec![0, 1, 2, 3, 4, 0, 1, 2], 10));
}

#[test]
fn compression_is_told_by_content_not_by_name() {
    let directory = four_files();
    fs::write(directory.path().join("train-images-idx3-ubyte"), gzip(&images(5, 2, 3))).unwrap();
    assert_eq!(load_idx_directory(directory.path()).unwrap().len(), 8);
}

#[test]
fn a_single_file_finds_its_labels_compressed_or_not() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("emnist-images-idx3-ubyte");
    fs::write(&path, images(20, 4, 4)).unwrap();
    let mut many_classes = labels(20);
    many_classes[8 + 19] = 46;
    fs::write(directory.path().join("emnist-labels-idx1-ubyte.gz"), gzip(&many_classes)).unwrap();
    let data = load_idx_file(&path).unwrap();
    assert_eq!((data.len(), data.n_classes()), (20, 47));
    assert_eq!((data.split(Split::Train).len(), data.split(Split::Test).len()), (16, 4));
}

#[test]
fn missing_files_are_named() {
    let directory = four_files();
    fs::remove_file(directory.path().join("t10k-labels-idx1-ubyte")).unwrap();
    assert!(is_idx_directory(directory.path()));
    let error = load_idx_directory(directory.path()).unwrap_err();
    assert!(matches!(&error, DataError::Io { path, .. } if path.ends_with("t10k-labels-idx1-ubyte")), "{error}");
    let lone = directory.path().join("lone-images-idx3-ubyte");
    fs::write(&lone, images(1, 1, 1)).unwrap();
    let error = load_idx_file(&lone).unwrap_err();
    assert!(matches!(&error, DataError::Io { path, .. } if path.ends_with("lone-labels-idx1-ubyte")), "{error}");
    let error = load_idx_file(&directory.path().join("t10k-labels-idx1-ubyte")).unwrap_err();
    assert!(error.to_string().contains("needs `images` in its name"), "{error}");
}

#[test]
fn test_images_must_have_the_size_of_the_training_images() {
    let directory = four_files();
    fs::write(directory.path().join("t10k-images-idx3-ubyte"), images(3, 3, 2)).unwrap();
    let error = load_idx_directory(directory.path()).unwrap_err().to_string();
    assert!(error.ends_with("at byte 8: expected images of 2×3, as for training, found 3×2"), "{error}");
}

#[test]
fn wrong_magic_numbers_are_refused() {
    assert_eq!(
        error_of(&labels(5), &labels(5)),
        "x-images-idx3-ubyte: at byte 0: expected magic number 0x00000803 (images), found 0x00000801"
    );
    assert_eq!(
        error_of(&images(5, 2, 2), &images(5, 2, 2)),
        "x-labels-idx1-ubyte: at byte 0: expected magic number 0x00000801 (labels), found 0x00000803"
    );
}

#[test]
fn counts_must_match() {
    let error = error_of(&images(5, 2, 2), &labels(4));
    assert!(error.starts_with("x-labels-idx1-ubyte: at byte 4: expected 5 labels, as many as"), "{error}");
    assert!(error.ends_with("found 4"), "{error}");
}

#[test]
fn truncation_is_found_wherever_it_happens() {
    let whole = images(5, 2, 3);
    assert!(error_of(&[], &labels(5)).contains("at byte 0: expected 4 bytes of magic number, found the end after 0"));
    for length in 0..whole.len() {
        let error = error_of(&whole[..length], &labels(5));
        assert!(error.starts_with("x-images-idx3-ubyte: at byte "), "{length}: {error}");
    }
    assert_eq!(
        error_of(&whole[..whole.len() - 1], &labels(5)),
        "x-images-idx3-ubyte: at byte 16: expected 30 bytes of pixels (5 images of 2×3), found the end after 29"
    );
    let compressed = gzip(&whole);
    for length in 0..compressed.len() {
        let error = error_of(&compressed[..length], &labels(5));
        assert!(error.starts_with("x-images-idx3-ubyte: at byte "), "{length}: {error}");
    }
    let error = error_of(&whole, &labels(5)[..12]);
    assert_eq!(error, "x-labels-idx1-ubyte: at byte 8: expected 5 bytes of labels, found the end after 4");
}

#[test]
fn bytes_after_the_end_are_refused() {
    let mut longer = images(5, 2, 3);
    longer.push(0);
    assert_eq!(
        error_of(&longer, &labels(5)),
        "x-images-idx3-ubyte: at byte 46: expected the end, after the last image, found more bytes"
    );
}

#[test]
fn absurd_headers_cost_nothing() {
    let overflow = header(IMAGES_MAGIC, &[u32::MAX; 3]);
    assert_eq!(
        error_of(&overflow, &labels(5)),
        "x-images-idx3-ubyte: at byte 4: expected dimensions whose product fits in 64 bits, \
         found 4294967295×4294967295×4294967295"
    );
    // Sixteen exbibytes that are not there, plain and compressed.
    let huge = header(IMAGES_MAGIC, &[u32::MAX, u32::MAX, 1]);
    for bytes in [huge.clone(), gzip(&huge)] {
        let error = error_of(&bytes, &labels(5));
        assert!(error.contains("at byte 16: expected 18446744065119617025 bytes of pixels"), "{error}");
        assert!(error.ends_with("found the end after 0"), "{error}");
    }
    let none = header(IMAGES_MAGIC, &[0, 28, 28]);
    assert_eq!(
        error_of(&none, &labels(5)),
        "x-images-idx3-ubyte: at byte 4: expected a number of images above 0, found 0"
    );
    let flat = header(IMAGES_MAGIC, &[5, 28, 0]);
    assert_eq!(
        error_of(&flat, &labels(5)),
        "x-images-idx3-ubyte: at byte 12: expected a number of columns above 0, found 0"
    );
}

#[test]
fn a_damaged_checksum_is_found() {
    let mut compressed = gzip(&images(5, 2, 3));
    let at = compressed.len() - 6;
    compressed[at] ^= 1;
    let error = error_of(&compressed, &labels(5));
    assert!(error.starts_with("x-images-idx3-ubyte: at byte 46: expected"), "{error}");
}
