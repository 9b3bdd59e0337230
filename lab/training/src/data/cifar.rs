//! CIFAR-10, binary version.
//!
//! Source: A. Krizhevsky, *The CIFAR-10 dataset*, section "Binary version": six files of records, each record
//! one byte with the class and 3072 bytes of pixels: 1024 red, 1024 green, 1024 blue, each plane row by row.

use std::path::Path;

use super::dataset::{Dataset, Targets};
use super::error::Result;
use super::source::Source;

const INPUT_DIMS: [usize; 3] = [3, 32, 32];
const PIXEL_BYTES: u64 = 3 * 32 * 32;
const RECORD_BYTES: u64 = 1 + PIXEL_BYTES;
const N_CLASSES: u8 = 10;
const TRAIN_FILES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const TEST_FILE: &str = "test_batch.bin";

/// Reads a directory with `data_batch_1.bin` … `data_batch_5.bin` (training) and `test_batch.bin` (testing). A file may
/// hold any number of records. Pixels are scaled to 0 … 1, examples are 3 × 32 × 32.
///
/// # Errors
/// [`DataError::Io`](super::DataError::Io) for a file that is missing or unreadable,
/// [`DataError::Format`](super::DataError::Format) for one that ends within a record or holds a class above 9.
pub fn load_cifar10(directory: &Path) -> Result<Dataset> {
    let mut inputs = Vec::new();
    let mut classes = Vec::new();
    for name in TRAIN_FILES {
        read_records(&directory.join(name), &mut inputs, &mut classes)?;
    }
    let train_len = classes.len();
    read_records(&directory.join(TEST_FILE), &mut inputs, &mut classes)?;
    let targets = Targets::Classes(classes, usize::from(N_CLASSES));
    Dataset::new("cifar10", inputs, INPUT_DIMS.to_vec(), targets, train_len)
}

/// Whether a directory holds any of the six files, which is enough to read it as CIFAR-10.
pub(super) fn is_cifar10_directory(directory: &Path) -> bool {
    TRAIN_FILES.iter().chain([&TEST_FILE]).any(|name| directory.join(name).exists())
}

fn read_records(path: &Path, inputs: &mut Vec<f32>, classes: &mut Vec<i64>) -> Result<()> {
    let mut source = Source::open(path)?;
    loop {
        let start = source.offset();
        let record = source.up_to(RECORD_BYTES, "a record")?;
        let Some((class, pixels)) = record.split_first() else {
            if start == 0 {
                return Err(source.wrong(0, format!("records of {RECORD_BYTES} bytes"), "an empty file"));
            }
            return source.finish("the last record");
        };
        if pixels.len() as u64 != PIXEL_BYTES {
            let expected = format!("a record of {RECORD_BYTES} bytes");
            return Err(source.wrong(start, expected, format!("the end after {}", record.len())));
        }
        if *class >= N_CLASSES {
            return Err(source.wrong(start, format!("a class from 0 to {}", N_CLASSES - 1), class.to_string()));
        }
        classes.push(i64::from(*class));
        inputs.extend(pixels.iter().map(|pixel| f32::from(*pixel) / 255.0));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::data::{DataError, Split};

    fn record(class: u8) -> Vec<u8> {
        std::iter::once(class).chain((0..PIXEL_BYTES).map(|v| (v % 251) as u8 ^ class)).collect()
    }

    /// One record in each of five files, of classes 0 … 4, and two for testing.
    fn six_files() -> TempDir {
        let directory = TempDir::new().unwrap();
        for (class, name) in (0..).zip(TRAIN_FILES) {
            fs::write(directory.path().join(name), record(class)).unwrap();
        }
        fs::write(directory.path().join(TEST_FILE), [record(8), record(9)].concat()).unwrap();
        directory
    }

    fn error_with(name: &str, bytes: &[u8]) -> String {
        let directory = six_files();
        fs::write(directory.path().join(name), bytes).unwrap();
        let text = load_cifar10(directory.path()).unwrap_err().to_string();
        text.replace(&format!("{}/", directory.path().display()), "")
    }

    #[test]
    fn a_directory_comes_back_as_it_was_written() {
        let data = load_cifar10(six_files().path()).unwrap();
        assert_eq!((data.len(), data.input_dims(), data.n_classes()), (7, [3, 32, 32].as_slice(), 10));
        assert_eq!(data.targets(), &Targets::Classes(vec![0, 1, 2, 3, 4, 8, 9], 10));
        assert_eq!(
            (data.split(Split::Train), data.split(Split::Test)),
            ([0, 1, 2, 3, 4].as_slice(), [5, 6].as_slice())
        );
        let (inputs, _) = data.batch(&[6]).unwrap();
        let expected: Vec<f32> = record(9)[1..].iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
        assert_eq!(inputs, expected);
    }

    #[test]
    fn a_missing_file_is_named() {
        let directory = six_files();
        fs::remove_file(directory.path().join("data_batch_3.bin")).unwrap();
        let error = load_cifar10(directory.path()).unwrap_err();
        assert!(matches!(&error, DataError::Io { path, .. } if path.ends_with("data_batch_3.bin")), "{error}");
    }

    #[test]
    fn damage_is_located() {
        let mut cut = [record(1), record(2)].concat();
        cut.pop();
        assert_eq!(
            error_with("data_batch_2.bin", &cut),
            "data_batch_2.bin: at byte 3073: expected a record of 3073 bytes, found the end after 3072"
        );
        assert_eq!(
            error_with("test_batch.bin", &[record(1), vec![3]].concat()),
            "test_batch.bin: at byte 3073: expected a record of 3073 bytes, found the end after 1"
        );
        assert_eq!(
            error_with("test_batch.bin", &[record(9), record(10)].concat()),
            "test_batch.bin: at byte 3073: expected a class from 0 to 9, found 10"
        );
        assert_eq!(
            error_with("data_batch_5.bin", &[]),
            "data_batch_5.bin: at byte 0: expected records of 3073 bytes, found an empty file"
        );
    }
}
