//! Sizes as messages print them.

use std::fmt;

use memcore::memory::TorchSize;

/// A size as printed: two decimals and a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The printed figure, in bytes.
    pub bytes: u64,
    /// Half a unit of its last decimal, in bytes.
    pub tolerance: u64,
}

impl Size {
    pub(super) fn from_bytes(bytes: u64) -> Self {
        Self { bytes, tolerance: 0 }
    }

    /// Returns the sum; the tolerances add up.
    pub(super) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), tolerance: self.tolerance + other.tolerance }
    }

    /// Returns the difference, at least 0; the tolerances add up.
    pub(super) fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), tolerance: self.tolerance + other.tolerance }
    }

    /// True if it exceeds `other` by more than the rounding of both.
    pub(super) fn surely_exceeds(self, other: Self) -> bool {
        self.bytes > other.bytes.saturating_add(self.tolerance + other.tolerance)
    }

    /// Formats the size as `--gpu` and `--memory-limit` read it.
    pub(super) fn as_flag(self) -> String {
        self.to_string().replace(' ', "").replace("bytes", "B")
    }

    /// Reads `20.00 MiB`, or `20.00MiB`, at the beginning of a text. `MB` and `GB`, which the MPS allocator prints, are powers of 1024
    /// as well.
    pub(super) fn at_start(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
        let unit = rest.strip_prefix(' ').unwrap_or(rest).split(|c: char| !c.is_ascii_alphabetic()).next()?;
        let unit: u64 = match unit {
            "bytes" | "byte" | "B" => 1,
            "KiB" | "KB" => 1 << 10,
            "MiB" | "MB" => 1 << 20,
            "GiB" | "GB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return None,
        };
        let value: f64 = number.parse().ok().filter(|_| number.len() < 24)?;
        let bytes = value * unit as f64;
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len().min(9) as i32);
        let tolerance = if unit == 1 { 0.0 } else { unit as f64 * 0.5 / 10f64.powi(decimals) };
        (bytes < (1u64 << 60) as f64)
            .then_some(Self { bytes: bytes.round() as u64, tolerance: tolerance.ceil() as u64 })
    }

    /// Reads `1.50 GiB (1610612736 bytes)` at the beginning of a text: exact where the bytes are printed.
    pub(super) fn exact_at_start(text: &str) -> Option<Self> {
        let printed = Self::at_start(text)?;
        let in_parentheses = text.trim_start().splitn(3, ' ').nth(2).and_then(|rest| rest.strip_prefix('('));
        let exact = in_parentheses.and_then(Self::at_start).filter(|exact| exact.tolerance == 0);
        Some(exact.unwrap_or(printed))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TorchSize(self.bytes).fmt(f)
    }
}
