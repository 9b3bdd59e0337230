//! Results of collectives. A result is made from the ranks' records when it is read.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::exchange;

/// Contents that a collective leaves. Reading them may have to wait.
#[derive(Debug)]
pub(crate) struct Promise {
    /// Records from which the contents are made: channel and number.
    pub(crate) parts: Vec<(String, u64)>,
    pub(crate) how: How,
    /// True if some records stand for ranks that were not started.
    pub(crate) assumed: bool,
    pub(crate) found: OnceLock<Option<Vec<u8>>>,
}

/// A promise, and a range of its contents.
pub(crate) type Part = (Arc<Promise>, Range<usize>);

/// Rule that makes contents from records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// One after the other.
    Joined,
    /// Element by element: `ncclDataType_t`, `ncclRedOp_t`.
    Reduced { kind: c_int, operation: c_int },
}

impl Promise {
    pub(crate) fn new(parts: Vec<(String, u64)>, how: How, assumed: bool) -> Self {
        Self { parts, how, assumed, found: OnceLock::new() }
    }

    /// Returns the contents if they are there already; `Some(None)` if they are not known.
    pub(crate) fn found(&self) -> Option<Option<&[u8]>> {
        self.found.get().map(Option::as_deref)
    }

    /// Waits for the contents.
    pub(crate) fn wait(&self) {
        self.found.get_or_init(|| {
            let parts: Option<Vec<Vec<u8>>> =
                self.parts.iter().map(|(channel, number)| exchange::receive(channel, *number)).collect();
            let found = match self.how {
                How::Joined => Some(parts?.concat()),
                How::Reduced { kind, operation } => reduced(&parts?, kind, operation),
            };
            if self.assumed && found.is_some() {
                crate::log::once("absent_rank", "ranks that were not started were taken to send what this one sends");
            }
            found
        });
    }
}

/// Most promises that can wait to be taken. Older ones are dropped, and their contents are not known.
const MAX_NUMBERED: usize = 4096;

/// Promises that a layer inside the program will ask for, by number.
struct Numbered {
    last: u64,
    promises: BTreeMap<u64, Vec<Part>>,
}

static NUMBERED: Mutex<Numbered> = Mutex::new(Numbered { last: 0, promises: BTreeMap::new() });

/// Returns a number for parts of collectives' results, one after the other.
pub(crate) fn number(parts: Vec<Part>) -> u64 {
    let mut numbered = NUMBERED.lock().unwrap_or_else(PoisonError::into_inner);
    numbered.last += 1;
    let number = numbered.last;
    numbered.promises.insert(number, parts);
    if numbered.promises.len() > MAX_NUMBERED {
        numbered.promises.pop_first();
    }
    number
}

/// Waits for the contents that a number stands for. Returns them, and whether ranks that were not started have a part
/// in them.
pub(crate) fn take(number: u64) -> Option<(Vec<u8>, bool)> {
    let parts = NUMBERED.lock().unwrap_or_else(PoisonError::into_inner).promises.remove(&number)?;
    let (mut contents, mut assumed) = (Vec::new(), false);
    for (promise, part) in parts {
        promise.wait();
        contents.extend_from_slice(promise.found()??.get(part)?);
        assumed |= promise.assumed;
    }
    Some((contents, assumed))
}

/// Reduces the elements of several ranks. `None` for types and operations that are not computed here.
fn reduced(parts: &[Vec<u8>], kind: c_int, operation: c_int) -> Option<Vec<u8>> {
    macro_rules! of {
        ($element:ty, $sum:expr, $product:expr, $divided:expr) => {
            folded(
                parts,
                operation,
                <$element>::from_ne_bytes,
                <$element>::to_ne_bytes,
                Fold { sum: $sum, product: $product, most: <$element>::max, least: <$element>::min, divided: $divided },
            )
        };
        // Computes in a wider type: the number of ranks may not fit into `i8`.
        (whole $element:ty) => {
            of!($element, <$element>::wrapping_add, <$element>::wrapping_mul, |sum, count| {
                (i128::from(sum) / count as i128) as $element
            })
        };
        (real $element:ty) => {
            of!($element, |one, other| one + other, |one, other| one * other, |sum, count| sum / count as $element)
        };
    }
    match kind {
        0 => of!(whole i8),
        1 => of!(whole u8),
        2 => of!(whole i32),
        3 => of!(whole u32),
        4 => of!(whole i64),
        5 => of!(whole u64),
        7 => of!(real f32),
        8 => of!(real f64),
        _ => None,
    }
}

struct Fold<T> {
    sum: fn(T, T) -> T,
    product: fn(T, T) -> T,
    most: fn(T, T) -> T,
    least: fn(T, T) -> T,
    divided: fn(T, usize) -> T,
}

fn folded<T: Copy, const BYTES: usize>(
    parts: &[Vec<u8>],
    operation: c_int,
    read: fn([u8; BYTES]) -> T,
    write: fn(T) -> [u8; BYTES],
    fold: Fold<T>,
) -> Option<Vec<u8>> {
    let two = match operation {
        0 | 4 => fold.sum,
        1 => fold.product,
        2 => fold.most,
        3 => fold.least,
        _ => return None,
    };
    let elements = |part: &Vec<u8>| -> Vec<T> {
        part.chunks_exact(BYTES).filter_map(|bytes| Some(read(bytes.try_into().ok()?))).collect()
    };
    let (first, rest) = parts.split_first()?;
    let mut all = elements(first);
    for part in rest {
        if part.len() != first.len() {
            return None;
        }
        all.iter_mut().zip(elements(part)).for_each(|(one, other)| *one = two(*one, other));
    }
    if operation == 4 {
        all.iter_mut().for_each(|sum| *sum = (fold.divided)(*sum, parts.len()));
    }
    Some(all.into_iter().flat_map(write).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_reduced_in_their_own_type() {
        let of = |numbers: &[i32]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
        let parts = [of(&[1, -5, 7]), of(&[3, 4, -7])];
        for (operation, expected) in [(0, [4, -1, 0]), (1, [3, -20, -49]), (2, [3, 4, 7]), (3, [1, -5, -7])] {
            assert_eq!(reduced(&parts, 2, operation), Some(of(&expected)));
        }
        let of = |number: f32| number.to_ne_bytes().to_vec();
        assert_eq!(reduced(&[of(1.0), of(4.0)], 7, 4), Some(of(2.5)));
        assert_eq!(
            reduced(&vec![vec![1]; 256], 0, 4),
            Some(vec![0]),
            "the average of as many ranks as `i8` has values"
        );
        assert_eq!(reduced(&[of(1.0), of(4.0)], 9, 0), None, "bfloat16 is not computed");
        assert_eq!(reduced(&[of(1.0), of(4.0)], 7, 5), None, "an operation of the program's own");
        assert_eq!(reduced(&[of(1.0), vec![0; 8]], 7, 0), None, "ranks that disagree about the size");
    }
}
