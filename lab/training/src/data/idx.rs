//! IDX files: the format of MNIST, Fashion-MNIST and their relatives.
//!
//! Source: Y. LeCun, C. Cortes, C. Burges, *The MNIST database of handwritten digits*, section "File formats":
//! a magic number (two zero bytes, the element type, the number of dimensions), each dimension as a big-endian
//! 32-bit number, then the elements in row-major order. Images are type 8 (unsigned byte) with three
//! dimensions, labels type 8 with one.

use std::path::{Path, PathBuf};

use super::dataset::{Dataset, Targets};
use super::error::{DataError, Result};
use super::source::Source;

const IMAGES_MAGIC: u32 = 0x0000_0803;
const LABELS_MAGIC: u32 = 0x0000_0801;
/// Every known set in this format has at least this many classes; a part of one may lack the last of them.
const MIN_CLASSES: usize = 10;

/// Images as they are in the file, one byte per pixel.
struct Images {
    len: u64,
    rows: u64,
    columns: u64,
    pixels: Vec<u8>,
}

/// Reads the four usual files of a directory: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
/// `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`; each may be compressed (`.gz`), and a `.` may
/// stand before `idx`. Pixels are scaled to 0 … 1, examples are 1 × rows × columns.
///
/// # Errors
/// [`DataError::Io`] for a file that is missing or unreadable, [`DataError::Format`] for one that breaks the format or
/// does not fit the others.
pub fn load_idx_directory(directory: &Path) -> Result<Dataset> {
    let (mut train, mut labels) = read_pair(&find(directory, "train-images"), &find(directory, "train-labels"))?;
    let test_path = find(directory, "t10k-images");
    let (test, test_labels) = read_pair(&test_path, &find(directory, "t10k-labels"))?;
    if (test.rows, test.columns) != (train.rows, train.columns) {
        return Err(DataError::Format {
            path: test_path,
            offset: 8,
            expected: format!("images of {}×{}, as for training", train.rows, train.columns),
            found: format!("{}×{}", test.rows, test.columns),
        });
    }
    let train_len = labels.len();
    train.pixels.extend_from_slice(&test.pixels);
    labels.extend_from_slice(&test_labels);
    dataset(directory, train, &labels, train_len)
}

/// Reads one file of images. The labels are in the same folder, under the same name with `labels` in place of `images` (and `idx1` of `idx3`). A fifth, drawn
/// at random but always the same, is for testing.
///
/// # Errors
/// Those of [`load_idx_directory`]; [`DataError::Invalid`] if the name does not contain `images`.
pub fn load_idx_file(images: &Path) -> Result<Dataset> {
    let name = images.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.contains("images") {
        let problem = format!("{}: a file of images needs `images` in its name, to find its labels", images.display());
        return Err(DataError::invalid("data", problem));
    }
    let label_name = name.replace("images", "labels").replace("idx3", "idx1");
    let plain = label_name.trim_end_matches(".gz");
    let candidates = [label_name.clone(), plain.to_string(), format!("{plain}.gz")];
    let beside = |name: &String| images.with_file_name(name);
    let labels = candidates.iter().map(beside).find(|path| path.exists()).unwrap_or_else(|| beside(&label_name));
    let (images_read, labels_read) = read_pair(images, &labels)?;
    let len = labels_read.len();
    dataset(images, images_read, &labels_read, len).map(Dataset::with_drawn_split)
}

/// Whether a directory holds any of the four files, which is enough to read it as one of these sets.
pub(super) fn is_idx_directory(directory: &Path) -> bool {
    ["train-images", "train-labels", "t10k-images", "t10k-labels"].iter().any(|stem| find(directory, stem).exists())
}

/// Whether the first bytes of a file could be those of an IDX file, whatever its type and number of dimensions.
pub(super) fn is_idx_file(path: &Path) -> Result<bool> {
    let start = Source::open(path)?.up_to(4, "a magic number")?;
    Ok(matches!(start[..], [0, 0, 8..=14, 1..=8]))
}

/// Returns the first spelling of a file that exists, else the usual one for the error message.
fn find(directory: &Path, stem: &str) -> PathBuf {
    let idx = if stem.ends_with("images") { "idx3-ubyte" } else { "idx1-ubyte" };
    let spellings =
        [format!("{stem}-{idx}"), format!("{stem}-{idx}.gz"), format!("{stem}.{idx}"), format!("{stem}.{idx}.gz")];
    let usual = directory.join(&spellings[0]);
    spellings.iter().map(|name| directory.join(name)).find(|path| path.exists()).unwrap_or(usual)
}

fn dataset(path: &Path, images: Images, labels: &[u8], train_len: usize) -> Result<Dataset> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let n_classes = labels.iter().max().map_or(0, |max| usize::from(*max) + 1).max(MIN_CLASSES);
    let inputs = images.pixels.iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
    let classes = labels.iter().map(|label| i64::from(*label)).collect();
    // Each dimension divides the number of pixels that were read, so it fits.
    let input_dims = vec![1, images.rows as usize, images.columns as usize];
    Dataset::new(name, inputs, input_dims, Targets::Classes(classes, n_classes), train_len)
}

fn read_pair(images_path: &Path, labels_path: &Path) -> Result<(Images, Vec<u8>)> {
    let images = read_images(images_path)?;
    let labels = read_labels(labels_path, images.len, images_path)?;
    Ok((images, labels))
}

fn read_images(path: &Path) -> Result<Images> {
    let mut source = Source::open(path)?;
    check_magic(&mut source, IMAGES_MAGIC, "images")?;
    let len = dimension(&mut source, "number of images")?;
    let rows = dimension(&mut source, "number of rows")?;
    let columns = dimension(&mut source, "number of columns")?;
    let Some(bytes) = len.checked_mul(rows).and_then(|product| product.checked_mul(columns)) else {
        let found = format!("{len}×{rows}×{columns}");
        return Err(source.wrong(4, "dimensions whose product fits in 64 bits", found));
    };
    let pixels = source.take(bytes, &format!("pixels ({len} images of {rows}×{columns})"))?;
    source.finish("the last image")?;
    Ok(Images { len, rows, columns, pixels })
}

fn read_labels(path: &Path, n_images: u64, images_path: &Path) -> Result<Vec<u8>> {
    let mut source = Source::open(path)?;
    check_magic(&mut source, LABELS_MAGIC, "labels")?;
    let len = dimension(&mut source, "number of labels")?;
    if len != n_images {
        let expected = format!("{n_images} labels, as many as there are images in {}", images_path.display());
        return Err(source.wrong(4, expected, len.to_string()));
    }
    let labels = source.take(len, "labels")?;
    source.finish("the last label")?;
    Ok(labels)
}

fn check_magic(source: &mut Source<'_>, magic: u32, what: &str) -> Result<()> {
    let found = source.take_u32_be("magic number")?;
    if found != magic {
        return Err(source.wrong(0, format!("magic number {magic:#010x} ({what})"), format!("{found:#010x}")));
    }
    Ok(())
}

fn dimension(source: &mut Source<'_>, what: &str) -> Result<u64> {
    let offset = source.offset();
    match source.take_u32_be(what)? {
        0 => Err(source.wrong(offset, format!("a {what} above 0"), "0")),
        value => Ok(u64::from(value)),
    }
}

#[cfg(test)]
#[path = "idx_tests.rs"]
mod tests;
