//! Parsers of single values.

use clap::builder::{RangedU64ValueParser, TypedValueParser};
pub(super) use lab::run::flags::{MOST_USED, one_of};

/// Largest size of one dimension. Products of two stay within 64 bits.
const MAX_SIZE: u64 = 1 << 30;

/// Parses the end of a search.
pub(super) fn at_least_2() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(2..=MAX_SIZE)
}

/// Parses a finite number.
pub(super) fn finite(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err("must be finite".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a finite number, 0 or above.
pub(super) fn non_negative(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if value >= 0.0 => Ok(value),
        _ => Err("must not be negative".into()),
    }
}

/// Parses a finite number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if value > 0.0 => Ok(value),
        _ => Err("must be above 0".into()),
    }
}

/// Parses a number from 0 to 1.
pub(super) fn fraction(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("must lie between 0 and 1".into()),
    }
}
