//! Sizes in bytes, as they are typed: `8GiB`, `512MiB`, `1000`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::short;

/// Units and their sizes. The binary ones come first, because sizes are written in them.
const UNITS: [(&str, u64); 15] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("PiB", 1 << 50),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
    // As schedulers and command lines of GPUs write them.
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
];

/// The largest size that is accepted. A larger one is a mistake.
const MAX: u64 = 1 << 60;

/// The smallest bare number that is taken as bytes. Someone who types a smaller one more likely means MiB, GiB, or the number of a card.
const LEAST_BARE: u64 = 1 << 20;

/// Reads `8GiB`, `1.5 GiB`, `512MiB`, `20GB` (10⁹), `24G` (as 24GiB), `1000`.
///
/// # Errors
/// Says what is wrong, and which forms are right.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    let expected = || format!("expected a size such as 8GiB, 512MiB or 1000000, not {text:?}");
    let scale = match unit {
        "" => 1,
        _ => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(expected)?.1,
    };
    let too_large = || format!("{text:?} is more than {}", short(MAX));
    let bytes = if number.contains('.') {
        let value: f64 = number.parse().map_err(|_| expected())?;
        let bytes = value * scale as f64;
        if scale == 1 {
            return Err(expected());
        }
        if bytes > MAX as f64 {
            return Err(too_large());
        }
        bytes.round() as u64
    } else {
        if number.is_empty() {
            return Err(expected());
        }
        number.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(too_large)?
    };
    if bytes > MAX { Err(too_large()) } else { Ok(bytes) }
}

/// Reads a size of at least 1 byte, in the forms of [`parse`].
///
/// # Errors
/// Those of [`parse`], and a size of 0.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("must be at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

/// A size as it is typed: in the largest unit that it is a whole number of. [`parse`] reads the same number of bytes from it.
pub fn typed(bytes: u64) -> String {
    let whole = UNITS.iter().filter(|(_, scale)| bytes > 0 && bytes.is_multiple_of(*scale));
    match whole.rev().max_by_key(|(_, scale)| *scale) {
        Some((name, scale)) if *scale > 1 => format!("{}{name}", bytes / scale),
        _ => bytes.to_string(),
    }
}

/// Whether the text is a number without a unit that is too small to be meant in bytes.
pub fn is_small_and_bare(text: &str) -> bool {
    text.trim().parse::<u64>().is_ok_and(|bytes| bytes < LEAST_BARE)
}

/// A number of bytes. Files give it as a number, or as text in the forms of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(Self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer)
    }
}

/// Memory of a device: at least 1 byte, and not a small number without a unit. Files give it as a number, or as text in the forms of the command
/// line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MemorySize(pub u64);

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match parse_memory(text)? {
            bytes if is_small_and_bare(text) => {
                let number = text.trim();
                Err(format!("{bytes} bytes? Say a unit: {number}GiB, {number}MiB, or {number}B if that is meant"))
            }
            bytes => Ok(Self(bytes)),
        }
    }
}

impl<'de> Deserialize<'de> for MemorySize {
    /// Takes a number in a file as bytes, however small: a program wrote it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.as_u64() {
            Some(0) => Err(D::Error::custom("must be at least 1 byte")),
            Some(bytes) => Ok(Self(bytes)),
            None => number_or_text(value).map_err(D::Error::custom),
        }
    }
}

/// Reads a number, or the text of one.
fn number_or_text<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    text.parse().map_err(D::Error::custom)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_typed_in_its_largest_unit() {
        for text in ["8GiB", "1536MiB", "2TiB", "20GB", "500MB", "62914561"] {
            assert_eq!(typed(parse(text).unwrap()), text);
        }
        assert_eq!((typed(0), typed(8192 << 20), typed(1000)), ("0".into(), "8GiB".into(), "1kB".into()));
    }

    #[test]
    fn sizes_are_read_in_all_forms() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1000),
            ("8GiB", 8 << 30),
            ("8 gib", 8 << 30),
            ("512MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("0.5KiB", 512),
            ("20GB", 20_000_000_000),
            ("7B", 7),
            ("24G", 24 << 30),
            ("80g", 80 << 30),
            ("512M", 512 << 20),
            ("1024PiB", 1 << 60),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "GiB", "8 GiBs", "-1", "1e9", "1.5", "1.2.3GiB", ".", "8X", "0x10", "٣MiB", "nan", "1_000"] {
            assert!(parse(text).unwrap_err().contains("expected a size"), "{text}");
        }
        for text in ["99999999999999999999", "1025PiB", "18446744073709551615", "99999999999.5GiB", "16777217TiB"] {
            assert!(parse(text).unwrap_err().contains("more than 1 EiB"), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for bytes in [1u64 << 10, 3 << 29, 5 << 40, 1 << 60] {
            assert_eq!(parse(&short(bytes).replace("1 EiB", "1024 PiB")), Ok(bytes));
        }
    }
}
