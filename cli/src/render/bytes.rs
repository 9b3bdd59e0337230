//! Bytes, read and written.

pub(crate) use lab::figures::{both, lacking, short, signed};

/// Names of units and their sizes. Binary ones first: they are what is written.
const UNITS: [(&str, u64); 11] = [
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
];

/// Beyond this, a size is a mistake.
const MAX: u64 = 1 << 60;

/// Reads `8GiB`, `1.5 GiB`, `512MiB`, `20GB` (10⁹), `1000`.
///
/// # Errors
/// What is wrong, and the forms that are right.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            ("1024PiB", 1 << 60),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "GiB", "8 GiBs", "-1", "1e9", "1.5", "1.2.3GiB", ".", "8G", "0x10", "٣MiB", "nan", "1_000"] {
            assert!(parse_bytes(text).unwrap_err().contains("expected a size"), "{text}");
        }
        for text in ["99999999999999999999", "1025PiB", "18446744073709551615", "99999999999.5GiB", "16777217TiB"] {
            assert!(parse_bytes(text).unwrap_err().contains("more than 1 EiB"), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for bytes in [1u64 << 10, 3 << 29, 5 << 40, 1 << 60] {
            assert_eq!(parse_bytes(&short(bytes).replace("1 EiB", "1024 PiB")), Ok(bytes));
        }
    }
}
