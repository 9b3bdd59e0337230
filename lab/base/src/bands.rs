//! How far cards were from what was said: one table, by what decides it.
//!
//! Each row was chosen with some published or measured trainings in sight; `docs/accuracy.md` says how others compare. No row is about one training or one network.

use serde::{Deserialize, Serialize};

/// What decides how far a card may be from a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// PyTorch's own requests decide all, as in an eager program without convolutions.
    #[default]
    Requests,
    /// cuDNN's workspaces are those that a card with as many multiprocessors took.
    WorkspacesMeasured,
    /// cuDNN named its workspaces without a card.
    WorkspacesAsked,
    /// The same, and a card may take more for some.
    WorkspacesAskedInARange,
    /// Nobody named cuDNN's workspaces: each convolution takes its operands and its result once more.
    WorkspacesBounded,
    /// Several ranks: the streams of their communication differ from run to run.
    Ranks,
    /// A compiler or an autotuner times kernels, and takes others in another run.
    Compiled,
    /// Unknown values decide sizes, or a library's requests are not known.
    Unknown,
    /// vramlab's own kernels: nothing is predicted of another program.
    Own,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// What it is for.
    pub basis: Basis,
    /// Thousandths of what is reserved by which a card was below, at most.
    pub below: u64,
    /// Thousandths by which a card was above, at most.
    pub above: u64,
    /// Trainings that it was chosen with.
    pub source: &'static str,
}

/// All rows.
pub const BANDS: [Band; 9] = [
    band(
        Basis::Requests,
        10,
        45,
        "xMem's trainings on an RTX 3060 and 4060, own scripts without convolutions on an H200",
    ),
    band(Basis::WorkspacesMeasured, 10, 45, "torchvision on an H200, with the tables of that card"),
    band(Basis::WorkspacesAsked, 95, 120, "convolutional networks on an A100 with another release of cuDNN"),
    band(
        Basis::WorkspacesAskedInARange,
        95,
        120,
        "torchvision on an H200, and networks on an A100 with another release of cuDNN",
    ),
    band(Basis::WorkspacesBounded, 10, 300, "convolutional networks on an A100"),
    band(Basis::Ranks, 44, 44, "repeated runs of 100 programs on eight H100, nine of ten"),
    band(Basis::Compiled, 75, 110, "compiled and autotuned trainings on an H200"),
    band(Basis::Unknown, 75, 210, "detectors and networks of three dimensions on an H200"),
    band(Basis::Own, 0, 0, "nothing: the figures are this program's own"),
];

const fn band(basis: Basis, below: u64, above: u64, source: &'static str) -> Band {
    Band { basis, below, above, source }
}

/// Three figures. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The least that is likely.
    pub lower: u64,
    /// What is expected.
    pub expected: u64,
    /// The most that is likely.
    pub upper: u64,
}

impl std::ops::Add for Range {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            lower: self.lower.saturating_add(other.lower),
            expected: self.expected.saturating_add(other.expected),
            upper: self.upper.saturating_add(other.upper),
        }
    }
}

impl Basis {
    /// What a card may reserve where `expected` was said; with all that a card may take besides, `most`.
    pub fn range(self, expected: u64, most: u64) -> Range {
        let band = self.band();
        Range { lower: band.lower(expected), expected, upper: band.upper(most.max(expected)) }
    }

    /// The row of the table.
    pub fn band(self) -> &'static Band {
        BANDS.iter().find(|band| band.basis == self).unwrap_or(&BANDS[0])
    }

    /// It in words, after `because`.
    pub fn in_words(self) -> &'static str {
        match self {
            Basis::Requests => "PyTorch's requests decide",
            Basis::WorkspacesMeasured => "cuDNN's workspaces were measured on such a card",
            Basis::WorkspacesAsked => "cuDNN named its workspaces",
            Basis::WorkspacesAskedInARange => "cuDNN named its workspaces in a range",
            Basis::WorkspacesBounded => "cuDNN's workspaces are only bounded",
            Basis::Ranks => "runs with several ranks differ",
            Basis::Compiled => "a compiler times kernels",
            Basis::Unknown => "something is unknown",
            Basis::Own => "the figures are this program's own",
        }
    }
}

impl Band {
    /// The least that a card reserved where so much was said.
    pub fn lower(&self, reserved_bytes: u64) -> u64 {
        reserved_bytes - parts(reserved_bytes, self.below)
    }

    /// The most that a card reserved where so much was said.
    pub fn upper(&self, reserved_bytes: u64) -> u64 {
        reserved_bytes.saturating_add(parts(reserved_bytes, self.above))
    }

    /// What may be said for a run to fit into a room surely.
    pub fn surely(&self, room_bytes: u64) -> u64 {
        share(room_bytes, 1000, 1000 + self.above)
    }

    /// What may be said at most for a run to fit into a room perhaps.
    pub fn perhaps(&self, room_bytes: u64) -> u64 {
        share(room_bytes, 1000, 1000 - self.below)
    }
}

/// Thousandths of a number of bytes, rounded up: a band never becomes narrower.
fn parts(bytes: u64, thousandths: u64) -> u64 {
    u64::try_from((u128::from(bytes) * u128::from(thousandths)).div_ceil(1000)).unwrap_or(u64::MAX)
}

fn share(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(numerator) / u128::from(denominator)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_basis_has_one_row_and_the_least_known_the_widest() {
        for band in BANDS {
            assert_eq!(band.basis.band(), &band);
            assert!(band.below < 1000 && !band.basis.in_words().is_empty());
        }
        let width = |basis: Basis| basis.band().below + basis.band().above;
        assert!(width(Basis::Requests) <= 60, "the median for eager training");
        for wider in [Basis::WorkspacesAsked, Basis::WorkspacesBounded, Basis::Ranks, Basis::Compiled, Basis::Unknown] {
            assert!(width(wider) > width(Basis::Requests));
        }
        assert!(width(Basis::WorkspacesBounded) > width(Basis::WorkspacesAskedInARange));
    }

    #[test]
    fn what_fits_surely_has_an_upper_figure_that_fits() {
        for band in BANDS {
            for room in [0, 1, 999, 24 << 30, u64::MAX >> 12] {
                assert!(band.upper(band.surely(room)) <= room, "{room}");
                assert!(band.lower(band.perhaps(room)) <= room, "{room}");
                assert!(band.lower(room) <= room && room <= band.upper(room));
            }
        }
        assert_eq!(Basis::Own.band().upper(7), 7);
        assert_eq!(Basis::WorkspacesBounded.band().upper(1000), 1300);
    }
}
