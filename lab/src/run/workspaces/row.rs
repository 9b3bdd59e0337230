//! What cuDNN named for one case, and a case as numbers.

use memcore::DType;
use memcore::profile::{ConvolutionCase, PassBytes};

/// Types of convolutions that cuDNN computes. A file names them by their place here.
pub(super) const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// A bit for each workspace of a case.
pub(super) const ALL_PASSES: u8 = 0b111;

/// What cuDNN named for one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedWorkspaces {
    /// The workspaces.
    pub bytes: PassBytes,
    /// A bit for each of which a card may take more, up to [`WorkspaceTable::range_bytes`](super::WorkspaceTable::range_bytes).
    pub ranged: u8,
    /// A bit for each that a card with `MEASURED_MULTIPROCESSORS` was measured to take: what is in a range on other cards is not on such a one.
    pub measured: u8,
}

/// Number of multiprocessors of the card that was measured, an H200. An H100 SXM has as many.
pub(super) const MEASURED_MULTIPROCESSORS: u16 = 132;

/// Number of multiprocessors of the T4.
const MULTIPROCESSORS_OF_T4: u16 = 40;

/// True if cuDNN names the same workspaces for a card with so many multiprocessors as for others of its capability (ten times it). Cards of another
/// capability share answers, but for what is named in a range. Of 7.5 the T4 is asked about: a card of 72 differs in a fifth of the workspaces.
pub fn shares_answers(sm: u32, multiprocessors: Option<u16>) -> bool {
    sm != 75 || multiprocessors.is_none_or(|count| count == MULTIPROCESSORS_OF_T4)
}

impl NamedWorkspaces {
    /// What cuDNN named, of a card that was not measured.
    pub fn new(bytes: PassBytes, ranged: u8) -> Self {
        Self { bytes, ranged, measured: 0 }
    }

    /// The same for a card that is like the one measured, or is not.
    pub(super) fn on_card(self, is_like_measured: bool) -> Self {
        if is_like_measured {
            Self { ranged: self.ranged & !self.measured, ..self }
        } else {
            Self { measured: 0, ..self }
        }
    }

    /// True if a card may take more for a pass.
    pub(super) fn is_ranged(&self, pass: usize) -> bool {
        self.ranged >> pass & 1 == 1
    }
}

/// Returns a case as the numbers of a row; `None` for a type that cuDNN does not compute.
pub fn case_numbers(case: &ConvolutionCase) -> Option<Vec<u64>> {
    let dtype = TYPES.iter().position(|dtype| *dtype == case.dtype)?;
    let lists = [&case.input[..], &case.weight, &case.stride, &case.padding, &case.dilation];
    let numbers = [dtype, case.channels_last.into()].into_iter().chain(lists.into_iter().flatten().copied());
    Some(numbers.chain([case.groups]).map(|number| number as u64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_capability_7_5_are_asked_about_one_by_one() {
        assert!(shares_answers(75, Some(40)) && shares_answers(75, None) && shares_answers(86, Some(28)));
        assert!(!shares_answers(75, Some(72)), "an RTX 8000 has more than a T4");
    }
}
