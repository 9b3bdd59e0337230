//! What cuDNN named for one case, and a case as numbers.

use memcore::DType;
use memcore::profile::{ConvolutionCase, PassBytes};

/// Types of convolutions that cuDNN computes. A file names them by their place here.
pub(super) const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// What cuDNN named for one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedWorkspaces {
    /// The workspaces.
    pub bytes: PassBytes,
    /// A bit for each of which a card may take more, up to [`WorkspaceTable::range_bytes`](super::WorkspaceTable::range_bytes).
    pub ranged: u8,
}

impl NamedWorkspaces {
    /// True if a card may take more for a pass.
    pub(super) fn is_ranged(&self, pass: usize) -> bool {
        self.ranged >> pass & 1 == 1
    }
}

/// Bytes that a card with so many multiprocessors may take more for a plan in a range: a tile of partial sums for each, and alignment, as the library
/// for rehearsals counts.
pub const fn range_bytes(multiprocessors: u16) -> u64 {
    const TILE: u64 = 128 * 256 * 4;
    const ALIGNMENT: u64 = 512;
    multiprocessors as u64 * TILE + ALIGNMENT
}

/// Returns a case as the numbers of a row; `None` for a type that cuDNN does not compute.
pub fn case_numbers(case: &ConvolutionCase) -> Option<Vec<u64>> {
    let dtype = TYPES.iter().position(|dtype| *dtype == case.dtype)?;
    let lists = [&case.input[..], &case.weight, &case.stride, &case.padding, &case.dilation];
    let numbers = [dtype, case.channels_last.into()].into_iter().chain(lists.into_iter().flatten().copied());
    Some(numbers.chain([case.groups]).map(|number| number as u64).collect())
}
