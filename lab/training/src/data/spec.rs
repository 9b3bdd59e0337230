//! The value of `--data`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::cifar::{is_cifar10_directory, load_cifar10};
use super::dataset::Dataset;
use super::digits::digits;
use super::error::{DataError, Result};
use super::idx::{is_idx_directory, is_idx_file, load_idx_directory, load_idx_file};
use super::synthetic::Synthetic;

/// Source of data, as the command line names it: `synthetic`, `digits` or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSpec {
    /// Noise in the shape of the model's input.
    Synthetic,
    /// The embedded handwritten digits.
    Digits,
    /// A directory with MNIST's four files.
    IdxDirectory(PathBuf),
    /// A file of images in MNIST's format, with its labels in the same folder.
    IdxFile(PathBuf),
    /// A directory with CIFAR-10's six binary files.
    Cifar10(PathBuf),
}

/// The directory that CIFAR-10's archive unpacks to.
const CIFAR10_ARCHIVE: &str = "cifar-10-batches-bin";

impl DataSpec {
    /// Reads `synthetic`, `digits` or a path, and inspects the path for its format. A file that is itself called `digits` is `./digits`.
    ///
    /// # Errors
    /// [`DataError::Io`] if the path cannot be read, [`DataError::UnknownFormat`] if nothing there is known.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "synthetic" => Ok(DataSpec::Synthetic),
            "digits" => Ok(DataSpec::Digits),
            "" => Err(DataError::invalid("data", "expected `synthetic`, `digits` or a path, found nothing")),
            path => Self::detect(Path::new(path)),
        }
    }

    fn detect(path: &Path) -> Result<Self> {
        let metadata = path.metadata().map_err(|source| DataError::Io { path: path.to_path_buf(), source })?;
        if metadata.is_dir() {
            let unpacked = path.join(CIFAR10_ARCHIVE);
            if is_idx_directory(path) {
                return Ok(DataSpec::IdxDirectory(path.to_path_buf()));
            } else if is_cifar10_directory(path) {
                return Ok(DataSpec::Cifar10(path.to_path_buf()));
            } else if is_cifar10_directory(&unpacked) {
                return Ok(DataSpec::Cifar10(unpacked));
            }
            let expected = "train-images-idx3-ubyte and its three companions, or data_batch_1.bin … test_batch.bin";
            return Err(DataError::UnknownFormat { path: path.to_path_buf(), expected });
        }
        if is_idx_file(path)? {
            return Ok(DataSpec::IdxFile(path.to_path_buf()));
        }
        let expected =
            "an IDX file of images (magic number 0x00000803), or a directory with MNIST's or CIFAR-10's files";
        Err(DataError::UnknownFormat { path: path.to_path_buf(), expected })
    }

    /// Reads or makes the data. `synthetic` describes the noise; it is ignored for other sources.
    ///
    /// # Errors
    /// A [`DataError`] for whatever is wrong with the source.
    pub fn load(&self, synthetic: &Synthetic) -> Result<Dataset> {
        match self {
            DataSpec::Synthetic => synthetic.generate(),
            DataSpec::Digits => digits(),
            DataSpec::IdxDirectory(path) => load_idx_directory(path),
            DataSpec::IdxFile(path) => load_idx_file(path),
            DataSpec::Cifar10(path) => load_cifar10(path),
        }
    }
}

impl FromStr for DataSpec {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for DataSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSpec::Synthetic => f.write_str("synthetic"),
            DataSpec::Digits => f.write_str("digits"),
            DataSpec::IdxDirectory(path) | DataSpec::IdxFile(path) | DataSpec::Cifar10(path) => {
                write!(f, "{}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn parse_in(directory: &TempDir, name: &str) -> Result<DataSpec> {
        DataSpec::parse(directory.path().join(name).to_str().unwrap())
    }

    #[test]
    fn the_two_names_are_known() {
        let noise = Synthetic { input_dims: vec![4], n_classes: 3, len: 10, seed: 1 };
        assert_eq!(DataSpec::parse("digits").unwrap().load(&noise).unwrap().len(), 1797);
        let synthetic: DataSpec = "synthetic".parse().unwrap();
        assert_eq!(synthetic.load(&noise).unwrap(), noise.generate().unwrap());
        assert_eq!((synthetic.to_string(), DataSpec::Digits.to_string()), ("synthetic".into(), "digits".into()));
    }

    #[test]
    fn formats_are_told_by_what_is_there() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["mnist", "cifar", "archive/cifar-10-batches-bin"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("mnist/train-images-idx3-ubyte.gz"), []).unwrap();
        fs::write(path("cifar/test_batch.bin"), []).unwrap();
        fs::write(path("archive/cifar-10-batches-bin/data_batch_1.bin"), []).unwrap();
        fs::write(path("some-images"), [0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 255]).unwrap();
        fs::write(path("some-labels"), [0, 0, 8, 1, 0, 0, 0, 1, 9]).unwrap();
        assert_eq!(parse_in(&directory, "mnist").unwrap(), DataSpec::IdxDirectory(path("mnist")));
        assert_eq!(parse_in(&directory, "cifar").unwrap(), DataSpec::Cifar10(path("cifar")));
        let unpacked = path("archive/cifar-10-batches-bin");
        assert_eq!(parse_in(&directory, "archive").unwrap(), DataSpec::Cifar10(unpacked));
        let single = parse_in(&directory, "some-images").unwrap();
        assert_eq!(single, DataSpec::IdxFile(path("some-images")));
        let noise = Synthetic { input_dims: vec![4], n_classes: 3, len: 10, seed: 1 };
        assert_eq!(single.load(&noise).unwrap().inputs(), [1.0]);
    }

    #[test]
    fn what_is_unknown_is_an_error() {
        let directory = TempDir::new().unwrap();
        assert!(matches!(DataSpec::parse(""), Err(DataError::Invalid { .. })));
        assert!(matches!(parse_in(&directory, "absent"), Err(DataError::Io { .. })));
        assert!(matches!(parse_in(&directory, "."), Err(DataError::UnknownFormat { .. })));
        for contents in [b"".as_slice(), b"\0\0", b"PK\x03\x04 and so on", b"\0\0\x07\x03"] {
            fs::write(directory.path().join("file"), contents).unwrap();
            assert!(matches!(parse_in(&directory, "file"), Err(DataError::UnknownFormat { .. })), "{contents:?}");
        }
    }
}
