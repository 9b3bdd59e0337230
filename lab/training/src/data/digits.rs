//! Handwritten digits, inside the binary: a real task that needs no download.
//!
//! Source: E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI Machine Learning Repository,
//! 1998, CC BY 4.0; `lab/training/data/README.md` says more.

use std::path::Path;

use super::dataset::{Dataset, Targets};
use super::error::Result;
use super::source::Source;

const EMBEDDED: &[u8] = include_bytes!("../../data/digits.csv.gz");
const SIDE: usize = 8;
const MAX_PIXEL: u8 = 16;
const N_CLASSES: u8 = 10;
/// Limit for reading a damaged file: far more than the file holds.
const MAX_CSV_BYTES: u64 = 1 << 20;

/// The 1,797 digits: 1 × 8 × 8 pixels, scaled from 0 … 16 to 0 … 1, in 10 classes. A fifth of them (359), drawn at
/// random but always the same ones, is for testing.
///
/// # Errors
/// Only if the embedded file were damaged.
pub fn digits() -> Result<Dataset> {
    parse(Source::from_gzip(Path::new("the embedded digits.csv.gz"), EMBEDDED))
}

fn parse(mut source: Source<'_>) -> Result<Dataset> {
    let text = source.up_to(MAX_CSV_BYTES, "comma-separated numbers")?;
    source.finish("at most 1 MiB of text")?;
    let mut inputs = Vec::new();
    let mut classes = Vec::new();
    let mut start = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let end = start + line.len();
        // Only the text after the last line end may be empty.
        if !(line.is_empty() && end == text.len()) {
            classes.push(parse_line(&source, line, start, &mut inputs)?);
        }
        start = end + 1;
    }
    let train_len = classes.len();
    let targets = Targets::Classes(classes, usize::from(N_CLASSES));
    Dataset::new("digits", inputs, vec![1, SIDE, SIDE], targets, train_len).map(Dataset::with_drawn_split)
}

/// Appends a line's pixels to `inputs` and returns its class. `start` is the line's offset in the text.
fn parse_line(source: &Source<'_>, line: &[u8], start: usize, inputs: &mut Vec<f32>) -> Result<i64> {
    let fields = SIDE * SIDE + 1;
    let count = line.split(|byte| *byte == b',').count();
    if count != fields {
        let expected = format!("a line of {fields} numbers");
        return Err(source.wrong(start as u64, expected, format!("{count}")));
    }
    let mut at = start;
    let mut class = 0;
    for (index, field) in line.split(|byte| *byte == b',').enumerate() {
        let (what, max) = if index + 1 < fields { ("pixel", MAX_PIXEL) } else { ("class", N_CLASSES - 1) };
        let text = String::from_utf8_lossy(field);
        let value = text.trim().parse::<u8>().ok().filter(|value| *value <= max);
        match value {
            Some(value) if what == "pixel" => inputs.push(f32::from(value) / f32::from(MAX_PIXEL)),
            Some(value) => class = i64::from(value),
            None => return Err(source.wrong(at as u64, format!("a {what} from 0 to {max}"), format!("{text:?}"))),
        }
        at += field.len() + 1;
    }
    Ok(class)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::data::Split;

    fn parse_text(text: &str) -> Result<Dataset> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        parse(Source::from_gzip(Path::new("x.csv.gz"), &encoder.finish().unwrap()))
    }

    fn line(pixel: &str, class: &str) -> String {
        format!("{}{class}\n", format!("{pixel},").repeat(64))
    }

    #[test]
    fn the_embedded_set_is_the_published_one() {
        let data = digits().unwrap();
        assert_eq!((data.len(), data.input_dims(), data.n_classes()), (1797, [1, 8, 8].as_slice(), 10));
        let Targets::Classes(classes, _) = data.targets();
        let counts: Vec<usize> = (0..10).map(|class| classes.iter().filter(|c| **c == class).count()).collect();
        // Counts that the repository's documentation lists for the test part.
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!(&classes[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let first_row: Vec<f32> = [0, 0, 5, 13, 9, 1, 0, 0].iter().map(|v| *v as f32 / 16.0).collect();
        assert_eq!(&data.inputs()[..8], first_row);
        assert_eq!(data.inputs().iter().copied().fold(0.0, f32::max), 1.0);
        assert_eq!((data.split(Split::Train).len(), data.split(Split::Test).len()), (1438, 359));
    }

    #[test]
    fn the_split_never_changes_and_holds_every_class() {
        let data = digits().unwrap();
        let (_, classes) = data.batch(data.split(Split::Test)).unwrap();
        assert!((0..10).all(|class| classes.iter().filter(|c| **c == class).count() >= 20));
        assert_eq!(data.split(Split::Test)[..4], digits().unwrap().split(Split::Test)[..4]);
    }

    #[test]
    fn text_is_read_with_and_without_a_last_line_end() {
        let text = line("16", "3") + &line("0", "9");
        assert_eq!(parse_text(&text).unwrap(), parse_text(text.trim_end()).unwrap());
        assert_eq!(parse_text(&text).unwrap().len(), 2);
    }

    #[test]
    fn damage_is_located() {
        let error = |text: String| parse_text(&text).unwrap_err().to_string();
        let good = line("1", "2");
        assert_eq!(good.len(), 130);
        assert_eq!(error(good.clone() + "1,2\n"), "x.csv.gz: at byte 130: expected a line of 65 numbers, found 2");
        assert_eq!(
            error(good.clone() + &line("1", "10")),
            "x.csv.gz: at byte 258: expected a class from 0 to 9, found \"10\""
        );
        assert_eq!(error(line("17", "2")), "x.csv.gz: at byte 0: expected a pixel from 0 to 16, found \"17\"");
        assert_eq!(error(format!("{good}\n{good}")), "x.csv.gz: at byte 130: expected a line of 65 numbers, found 1");
    }

    #[test]
    fn a_truncated_embedded_file_is_an_error() {
        let source = Source::from_gzip(Path::new("cut"), &EMBEDDED[..EMBEDDED.len() / 2]);
        let error = parse(source).unwrap_err().to_string();
        assert!(error.starts_with("cut: at byte "), "{error}");
    }
}
