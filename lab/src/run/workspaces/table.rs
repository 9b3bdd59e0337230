//! A table of workspaces, which a file can hold.

use std::collections::BTreeMap;

use lab_base::bands::range_bytes;
use lab_base::cards::ALL;
use lab_results::WorkspaceSource;
use memcore::profile::{ConvolutionCase, ConvolutionWorkspaces};
use serde::{Deserialize, Serialize};

use super::built_in::{BuiltIn, CUDNN, RELEASE};
use super::row::{ALL_PASSES, MEASURED_MULTIPROCESSORS, NamedWorkspaces, TYPES, case_numbers};

/// Workspaces of convolutions on the cards of one compute capability.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceTable {
    /// The cuDNN that named them, as it counts: 91900 is 9.19.0.
    pub cudnn: u32,
    /// Bytes by which workspaces may differ on a card.
    pub range_bytes: u64,
    /// The workspaces.
    pub rows: BTreeMap<ConvolutionCase, NamedWorkspaces>,
    /// Further ones, of the same cuDNN.
    built_in: Option<BuiltIn>,
    /// True for a card with as many multiprocessors as the one that was measured.
    is_like_measured: bool,
}

/// A table as it stands in a file.
#[derive(Serialize, Deserialize)]
struct Stored {
    cudnn: u32,
    range_bytes: u64,
    columns: Vec<String>,
    rows: Vec<Vec<u64>>,
}

/// What the numbers of a row are.
const COLUMNS: &str = "type channels_last n c h w k c/g kh kw stride_h stride_w padding_h padding_w dilation_h dilation_w groups forward \
                       input_gradient weight_gradient ranged";

impl WorkspaceTable {
    /// Makes a table of these workspaces.
    pub fn new(cudnn: u32, range_bytes: u64, rows: BTreeMap<ConvolutionCase, NamedWorkspaces>) -> Self {
        Self { cudnn, range_bytes, rows, ..Self::default() }
    }

    /// Returns what cuDNN named for a case.
    pub fn named(&self, case: &ConvolutionCase) -> Option<NamedWorkspaces> {
        let built_in = self.built_in.and_then(|tables| tables.named(case));
        let named = built_in.or_else(|| self.rows.get(case).copied())?;
        Some(named.on_card(self.is_like_measured))
    }

    /// The table for a card with so many multiprocessors.
    #[must_use]
    pub fn on_card(self, multiprocessors: Option<u16>) -> Self {
        Self { is_like_measured: multiprocessors == Some(MEASURED_MULTIPROCESSORS), ..self }
    }

    /// Returns the workspaces for a run. `most`: with all that a card may take.
    pub fn workspaces(&self, most: bool) -> ConvolutionWorkspaces {
        let table = self.clone();
        ConvolutionWorkspaces::new(move |case| {
            let named = table.named(case)?;
            let more = |pass: usize| if most && named.is_ranged(pass) { table.range_bytes } else { 0 };
            Some(std::array::from_fn(|pass| named.bytes[pass] + more(pass)))
        })
    }

    /// Returns where the workspaces of these cases are from: the least sure of them.
    pub fn source<'a>(&self, cases: impl Iterator<Item = &'a ConvolutionCase>) -> WorkspaceSource {
        let named = cases.filter_map(|case| self.named(case));
        let (ranged, measured) =
            named.fold((0, u8::MAX), |(ranged, measured), named| (ranged | named.ranged, measured & named.measured));
        match (ranged, measured & ALL_PASSES) {
            (0, ALL_PASSES) => WorkspaceSource::Measured,
            (0, _) => WorkspaceSource::Asked,
            _ => WorkspaceSource::AskedInARange,
        }
    }

    /// True if the release of PyTorch that a profile stands for has the cuDNN of this table. What another cuDNN than the tables' named is from
    /// the user's own PyTorch.
    pub fn is_of_release(&self, profile: &str) -> bool {
        self.cudnn != CUDNN || profile.starts_with(RELEASE)
    }

    /// Adds the rows of another table of the same cuDNN, or becomes that table.
    pub fn add(&mut self, other: Self) {
        if self.cudnn != other.cudnn {
            (self.rows, self.built_in) = (BTreeMap::new(), None);
        }
        (self.cudnn, self.range_bytes) = (other.cudnn, other.range_bytes);
        self.rows.extend(other.rows);
        self.built_in = self.built_in.or(other.built_in);
    }

    /// Reads the text of a file; `None` if it is no such table.
    pub fn read(text: &str) -> Option<Self> {
        let stored: Stored = serde_json::from_str(text).ok()?;
        let rows = stored.rows.iter().map(|row| read_row(row)).collect::<Option<_>>()?;
        Some(Self::new(stored.cudnn, stored.range_bytes, rows))
    }

    /// Returns the text for a file.
    pub fn write(&self) -> String {
        let rows = self.rows.iter().filter_map(|(case, named)| write_row(case, *named)).collect();
        let columns = COLUMNS.split(' ').filter(|name| !name.is_empty()).map(String::from).collect();
        let stored = Stored { cudnn: self.cudnn, range_bytes: self.range_bytes, columns, rows };
        serde_json::to_string(&stored).unwrap_or_default()
    }
}

fn write_row(case: &ConvolutionCase, named: NamedWorkspaces) -> Option<Vec<u64>> {
    let mut row = case_numbers(case)?;
    row.extend(named.bytes);
    row.push(named.ranged.into());
    Some(row)
}

fn read_row(row: &[u64]) -> Option<(ConvolutionCase, NamedWorkspaces)> {
    let mut numbers = row.iter().copied();
    let mut next = || numbers.next().and_then(|number| usize::try_from(number).ok());
    let dtype = *TYPES.get(next()?)?;
    let channels_last = next()? == 1;
    let mut size = || Some([next()?, next()?, next()?, next()?]);
    let (input, weight) = (size()?, size()?);
    let mut pair = || Some([next()?, next()?]);
    let (stride, padding, dilation) = (pair()?, pair()?, pair()?);
    let groups = next()?;
    let bytes = [next()? as u64, next()? as u64, next()? as u64];
    let ranged = u8::try_from(next()?).ok()?;
    let case = ConvolutionCase { dtype, channels_last, input, weight, stride, padding, dilation, groups };
    numbers.next().is_none().then_some((case, NamedWorkspaces::new(bytes, ranged)))
}

/// Returns the table that is built in for the cards of a compute capability (ten times it); `None` for one that has none.
pub fn built_in_workspaces(sm: u32) -> Option<WorkspaceTable> {
    let built_in = Some(BuiltIn::of_capability(sm)?);
    let most = ALL.iter().filter(|card| card.sm == sm).map(|card| card.multiprocessors).max()?;
    Some(WorkspaceTable { built_in, ..WorkspaceTable::new(CUDNN, range_bytes(most), BTreeMap::new()) })
}

#[cfg(test)]
mod tests {
    use memcore::DType;
    use memcore::profile::ConvolutionPass;

    use super::*;

    fn table() -> WorkspaceTable {
        let case = ConvolutionCase {
            dtype: DType::BF16,
            channels_last: true,
            input: [8, 64, 56, 28],
            weight: [32, 4, 3, 1],
            stride: [2, 1],
            padding: [1, 0],
            dilation: [1, 3],
            groups: 16,
        };
        let named = NamedWorkspaces::new([0, 512, 1 << 33], 0b110);
        WorkspaceTable::new(91900, 100, BTreeMap::from([(case, named)]))
    }

    #[test]
    fn a_table_comes_back_from_its_file() {
        let text = table().write();
        assert_eq!(WorkspaceTable::read(&text), Some(table()));
        for broken in ["", "{}", &text[..text.len() - 4], &text.replace("[2,1,", "[9,1,"), &text.replace("[2,1,", "[")]
        {
            assert_eq!(WorkspaceTable::read(broken), None, "{broken}");
        }
    }

    #[test]
    fn the_most_has_the_ranges_of_those_that_have_one() {
        let (table, case) = (table(), table().rows.into_keys().next().unwrap());
        let bytes = |most| {
            let found = table.workspaces(most);
            [ConvolutionPass::Forward, ConvolutionPass::InputGradient]
                .map(|pass| found.bytes(case.clone(), pass).unwrap())
        };
        assert_eq!((bytes(false), bytes(true)), ([0, 512], [0, 612]));
    }

    #[test]
    fn another_cudnn_does_not_add_to_a_table() {
        let mut known = table();
        known.add(WorkspaceTable::new(92000, 1, BTreeMap::new()));
        assert!(known.rows.is_empty());
        known.add(table());
        assert_eq!(known, table());
    }
}
