//! Workspaces of convolutions of the built-in networks, torchvision and timm, by usual batches. `lab/examples/workspace_tables.rs` makes the files: for each compute capability and
//! type rows of one width in order, in blocks that are compressed each for itself: a run has convolutions of one batch, which stand side by side.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use memcore::profile::ConvolutionCase;

use super::row::{ALL_PASSES, NamedWorkspaces, TYPES, case_numbers};

/// The cuDNN that named them, that of PyTorch 2.11.
pub(super) const CUDNN: u32 = 91900;

/// How the names of that release's profiles begin.
pub(super) const RELEASE: &str = "torch-2.11-";

/// Numbers of a case, each a word of a row's beginning.
const NUMBERS: usize = 17;
const CASE: usize = NUMBERS * size_of::<u32>();
/// The case, three workspaces, and a byte with a bit for each that a card may change, then a bit for each that was measured.
const ROW: usize = CASE + 3 * size_of::<u64>() + 1;
/// Rows of a block.
const BLOCK_ROWS: usize = 512;
/// An entry of a file's beginning: the first case of a block, and the block's end, counted from the end of these entries.
const ENTRY: usize = CASE + size_of::<u32>();

/// The tables of the cards of one compute capability, by type.
struct Packed {
    sm: u32,
    files: [&'static [u8]; TYPES.len()],
    /// Rows of the blocks that were read, by type and number.
    read: Mutex<BTreeMap<(usize, usize), Vec<u8>>>,
}

macro_rules! packed {
    ($($sm:literal),+) => {
        [$(Packed {
            sm: $sm,
            files: [
                include_bytes!(concat!("tables/sm", $sm, "-float32.rows")),
                include_bytes!(concat!("tables/sm", $sm, "-float16.rows")),
                include_bytes!(concat!("tables/sm", $sm, "-bfloat16.rows")),
            ],
            read: Mutex::new(BTreeMap::new()),
        }),+]
    };
}

static TABLES: [Packed; 7] = packed!(75, 80, 86, 89, 90, 100, 120);

/// Tables of one compute capability.
#[derive(Clone, Copy)]
pub(super) struct BuiltIn(&'static Packed);

impl std::fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BuiltIn({})", self.0.sm)
    }
}

impl PartialEq for BuiltIn {
    fn eq(&self, other: &Self) -> bool {
        self.0.sm == other.0.sm
    }
}

impl Eq for BuiltIn {}

impl BuiltIn {
    /// Returns the tables for the cards of a compute capability (ten times it).
    pub(super) fn of_capability(sm: u32) -> Option<Self> {
        TABLES.iter().find(|packed| packed.sm == sm).map(Self)
    }

    /// Finds what cuDNN named for a case.
    pub(super) fn named(self, case: &ConvolutionCase) -> Option<NamedWorkspaces> {
        let place = TYPES.iter().position(|dtype| *dtype == case.dtype)?;
        let key = packed_case(case)?;
        let file = Blocks::of_file(self.0.files[place])?;
        let number = file.entries.partition_point(|entry| entry[..CASE] <= key[..]).checked_sub(1)?;
        let mut read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = read.entry((place, number)).or_insert_with(|| file.rows(number));
        let rows = rows.as_chunks::<ROW>().0;
        let row = &rows[rows.binary_search_by(|row| row[..CASE].cmp(&key)).ok()?];
        let word = |pass: usize| {
            let begin = CASE + pass * size_of::<u64>();
            row[begin..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
        };
        let bits = row[ROW - 1];
        Some(NamedWorkspaces {
            bytes: [0, 1, 2].map(word),
            ranged: bits & ALL_PASSES,
            measured: bits >> 3 & ALL_PASSES,
        })
    }
}

/// A file's blocks.
struct Blocks {
    entries: &'static [[u8; ENTRY]],
    compressed: &'static [u8],
}

impl Blocks {
    /// Splits a file, which begins with the number of its blocks.
    fn of_file(file: &'static [u8]) -> Option<Self> {
        let (count, rest) = file.split_first_chunk()?;
        let (entries, compressed) = rest.split_at_checked(u32::from_be_bytes(*count) as usize * ENTRY)?;
        Some(Self { entries: entries.as_chunks().0, compressed })
    }

    /// Reads the rows of a block. A damaged one has none; a test reads all.
    fn rows(&self, number: usize) -> Vec<u8> {
        let end = |entry: &[u8; ENTRY]| entry[CASE..].first_chunk().map_or(0, |end| u32::from_be_bytes(*end) as usize);
        let begin = number.checked_sub(1).map_or(0, |before| end(&self.entries[before]));
        let mut rows = Vec::new();
        if let Some(block) = self.compressed.get(begin..end(&self.entries[number])) {
            let _ = DeflateDecoder::new(block).read_to_end(&mut rows);
        }
        rows
    }
}

/// The bytes of a file with these rows.
fn file_of_rows(rows: &[Vec<u8>]) -> Vec<u8> {
    let (mut entries, mut compressed) = (Vec::new(), Vec::new());
    for block in rows.chunks(BLOCK_ROWS) {
        // Reading from memory has no errors.
        let _ = DeflateEncoder::new(&block.concat()[..], Compression::best()).read_to_end(&mut compressed);
        entries.extend_from_slice(&block[0][..CASE]);
        entries.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
    }
    [&(entries.len() as u32 / ENTRY as u32).to_be_bytes()[..], &entries, &compressed].concat()
}

/// A case as the beginning of its row. The order of rows is that of these bytes.
fn packed_case(case: &ConvolutionCase) -> Option<Vec<u8>> {
    let numbers = case_numbers(case)?;
    numbers
        .into_iter()
        .map(|number| u32::try_from(number).ok().map(u32::to_be_bytes))
        .collect::<Option<Vec<_>>>()
        .map(|words| words.concat())
}

/// The files with these workspaces, one for each of the types in turn: float32, float16, bfloat16.
pub fn packed_workspaces(rows: &BTreeMap<ConvolutionCase, NamedWorkspaces>) -> [Vec<u8>; TYPES.len()] {
    TYPES.map(|dtype| {
        let of_type = rows.iter().filter(|(case, _)| case.dtype == dtype);
        let mut packed: Vec<Vec<u8>> = of_type
            .filter_map(|(case, named)| {
                let mut row = packed_case(case)?;
                row.extend(named.bytes.iter().flat_map(|bytes| bytes.to_be_bytes()));
                row.push(named.ranged | named.measured << 3);
                Some(row)
            })
            .collect();
        packed.sort();
        file_of_rows(&packed)
    })
}

#[cfg(test)]
mod tests {
    use memcore::DType;

    use super::*;

    /// The first convolution of ResNet-50.
    fn case(dtype: DType, batch: usize) -> ConvolutionCase {
        ConvolutionCase {
            dtype,
            channels_last: false,
            input: [batch, 3, 224, 224],
            weight: [64, 3, 7, 7],
            stride: [2, 2],
            padding: [3, 3],
            dilation: [1, 1],
            groups: 1,
        }
    }

    #[test]
    fn every_file_has_whole_rows_in_order() {
        for packed in &TABLES {
            let table = BuiltIn::of_capability(packed.sm).unwrap();
            for (place, dtype) in TYPES.into_iter().enumerate() {
                assert!(table.named(&case(dtype, 64)).is_some(), "{dtype:?} on {}", packed.sm);
                assert_eq!(table.named(&case(dtype, 63)), None);
                let file = Blocks::of_file(packed.files[place]).unwrap();
                let rows: Vec<Vec<u8>> = (0..file.entries.len()).map(|number| file.rows(number)).collect();
                assert!(rows.iter().zip(file.entries).all(|(rows, entry)| rows[..CASE] == entry[..CASE]));
                let rows = rows.concat();
                let (whole, rest) = rows.as_chunks::<ROW>();
                assert!(
                    rest.is_empty() && whole.len() > 1000 && whole.is_sorted_by(|one, next| one[..CASE] < next[..CASE])
                );
            }
        }
        assert_eq!(BuiltIn::of_capability(70), None);
    }

    #[test]
    fn rows_come_back_from_their_bytes() {
        let named = NamedWorkspaces { bytes: [1, 0, 1 << 40], ranged: 0b101, measured: 0b110 };
        let rows = [(case(DType::F16, 300), named), (case(DType::F16, 2), named)];
        let [floats, halves, _] =
            packed_workspaces(&BTreeMap::from(rows)).map(|file| Blocks::of_file(file.leak()).unwrap());
        assert!(floats.entries.is_empty() && halves.entries.len() == 1);
        let halves = halves.rows(0);
        assert!(halves.len() == 2 * ROW && halves[..CASE] == packed_case(&case(DType::F16, 2)).unwrap());
        assert_eq!(&halves[CASE..CASE + 8], &1_u64.to_be_bytes());
        assert_eq!(halves[ROW - 1], 0b110_101);
    }
}
