//! How far cards were from what was said: one table, by what decides it.
//!
//! `cargo xtask published` fits each row with measured trainings; `docs/accuracy.md` has them. No row is about one training or one network.

mod fitted;

use fitted::FITTED;
pub use fitted::MEASURED;
use serde::{Deserialize, Serialize};

/// What decides how far a card may be from a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// PyTorch's own requests decide all, as in an eager program without convolutions.
    #[default]
    Requests,
    /// The same, on cards of a compute capability of which none was measured.
    RequestsElsewhere,
    /// cuDNN's workspaces are those that a card with as many multiprocessors took.
    WorkspacesMeasured,
    /// cuDNN named its workspaces without a card. Of 9,013 on an H200 all were those of the card.
    WorkspacesAsked,
    /// The same, and cuBLASLt may take more for some.
    WorkspacesAskedInARange,
    /// The same, of engines that are made for one compute capability (9.0 and later): a card may take more or less.
    WorkspacesOfOneCapability,
    /// Another release of cuDNN than the training's named them.
    WorkspacesOfAnotherRelease,
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

/// Bytes by which a card with so many multiprocessors may differ from what cuDNN named for a plan in a range: a tile of partial sums for each, and
/// alignment, as the library for rehearsals counts.
pub const fn range_bytes(multiprocessors: u16) -> u64 {
    const TILE: u64 = 128 * 256 * 4;
    const ALIGNMENT: u64 = 512;
    multiprocessors as u64 * TILE + ALIGNMENT
}

/// What decides each row, in the order of the file of the fit.
const DECIDES: [Basis; FITTED.len()] = [
    Basis::Requests,
    Basis::RequestsElsewhere,
    Basis::WorkspacesMeasured,
    Basis::WorkspacesAsked,
    Basis::WorkspacesAskedInARange,
    Basis::WorkspacesOfOneCapability,
    Basis::WorkspacesOfAnotherRelease,
    Basis::WorkspacesBounded,
    Basis::Ranks,
    Basis::Compiled,
    Basis::Unknown,
    Basis::Own,
];

/// All rows.
pub const BANDS: [Band; FITTED.len()] = {
    let mut bands = [Band { basis: Basis::Own, below: 0, above: 0, source: "" }; FITTED.len()];
    let mut row = 0;
    while row < FITTED.len() {
        let (_, below, above, source) = FITTED[row];
        bands[row] = Band { basis: DECIDES[row], below, above, source };
        row += 1;
    }
    bands
};

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
    /// The basis of a run whose requests decide all, on a card of this compute capability (ten times it).
    pub fn of_requests(capability: Option<u32>) -> Self {
        match capability {
            Some(capability) if !MEASURED.contains(&capability) => Basis::RequestsElsewhere,
            _ => Basis::Requests,
        }
    }

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
            Basis::RequestsElsewhere => "PyTorch's requests decide, on a card like none that was measured",
            Basis::WorkspacesMeasured => "cuDNN's workspaces were measured on such a card",
            Basis::WorkspacesAsked => "cuDNN named its workspaces",
            Basis::WorkspacesAskedInARange => "cuDNN named its workspaces, but for cuBLASLt's part",
            Basis::WorkspacesOfOneCapability => "cuDNN named its workspaces in a range",
            Basis::WorkspacesOfAnotherRelease => "another release of cuDNN named the workspaces",
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

    /// What has this lower figure.
    pub fn of_lower(&self, lower_bytes: u64) -> u64 {
        let near = share(lower_bytes, 1000, 1000 - self.below);
        (near..=near + 3).find(|bytes| self.lower(*bytes) >= lower_bytes).unwrap_or(near)
    }

    /// What has this upper figure.
    pub fn of_upper(&self, upper_bytes: u64) -> u64 {
        let near = share(upper_bytes, 1000, 1000 + self.above);
        (near..near + 3).find(|bytes| self.upper(*bytes) >= upper_bytes).unwrap_or(near)
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
        for (band, (name, ..)) in BANDS.into_iter().zip(FITTED) {
            assert_eq!(format!("{:?}", band.basis), name);
            assert_eq!(band.basis.band(), &band);
            assert!(band.below < 1000 && !band.basis.in_words().is_empty() && !band.source.is_empty());
        }
        let width = |basis: Basis| basis.band().below + basis.band().above;
        assert!(width(Basis::Requests) <= 60, "the median for eager training");
        for wider in [Basis::RequestsElsewhere, Basis::WorkspacesBounded, Basis::Ranks, Basis::Compiled, Basis::Unknown]
        {
            assert!(width(wider) > width(Basis::Requests));
        }
        assert_eq!(Basis::of_requests(Some(70)), Basis::RequestsElsewhere);
        assert_eq!(Basis::of_requests(Some(80)), Basis::Requests);
    }

    #[test]
    fn a_figure_comes_back_from_its_ends() {
        for band in BANDS {
            for bytes in [0, 1, 999, 1000, 4_294_967_296, 12_345_678_901] {
                // Bytes are whole: two neighbours may have one end.
                assert!(band.of_lower(band.lower(bytes)).abs_diff(bytes) <= 1, "{:?}", band.basis);
                assert!(band.of_upper(band.upper(bytes)).abs_diff(bytes) <= 1, "{:?}", band.basis);
            }
        }
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
    }
}
