//! Parsers of single values.

use clap::builder::{RangedU64ValueParser, TypedValueParser};

use lab::models::Recompute;

use crate::render::bytes::parse_bytes;

/// The largest size of one dimension. Products of two stay within 64 bits.
const MAX_SIZE: u64 = 1 << 30;

/// The most layers.
const MAX_LAYERS: u64 = 1 << 16;

/// Bytes, at least 1: `8GiB`, `512MiB`, `1000`.
pub(super) fn memory_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("must be at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

/// A bare number below this is no number of bytes that anybody means: of MiB or GiB, more likely, or of a card.
const LEAST_BARE: u64 = 1 << 20;

/// Whether this is a number without a unit, and too small to be meant in bytes.
pub(super) fn is_small_and_bare(text: &str) -> bool {
    text.trim().parse::<u64>().is_ok_and(|bytes| bytes < LEAST_BARE)
}

/// Memory of a device: as [`memory_size`], but no small number without its unit.
pub(super) fn memory_of_device(text: &str) -> Result<u64, String> {
    match memory_size(text)? {
        bytes if is_small_and_bare(text) => {
            let number = text.trim();
            Err(format!("{bytes} bytes? Say a unit: {number}GiB, {number}MiB, or {number}B if that is meant"))
        }
        bytes => Ok(bytes),
    }
}

/// Bytes, 0 included.
pub(super) fn byte_count(text: &str) -> Result<u64, String> {
    parse_bytes(text)
}

/// A size of one dimension of a network.
pub(super) fn size() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(0..=MAX_SIZE)
}

/// `NAME=VALUE` of an environment.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// What is computed again.
pub(super) fn recompute(text: &str) -> Result<Recompute, String> {
    Recompute::parse(text).map_err(|error| match error {
        lab::Error::Usage { problem, .. } => problem,
        other => other.to_string(),
    })
}

/// Where a search ends.
pub(super) fn at_least_2() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(2..=MAX_SIZE)
}

/// How many ranks there are.
pub(super) fn ranks() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=MAX_SIZE)
}

/// How many layers: each takes room on the host even where the device has none.
pub(super) fn layer_count() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(0..=MAX_LAYERS)
}

/// A number that is one: neither infinite nor undefined.
pub(super) fn finite(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err("must be finite".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// A finite number, 0 or above.
pub(super) fn non_negative(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if value >= 0.0 => Ok(value),
        _ => Err("must not be negative".into()),
    }
}

/// A finite number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if value > 0.0 => Ok(value),
        _ => Err("must be above 0".into()),
    }
}

/// A number from 0 to 1.
pub(super) fn fraction(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("must lie between 0 and 1".into()),
    }
}
