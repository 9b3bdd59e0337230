//! Rehearsals of one script with several values, and the search for the largest value that fits.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use lab_base::error::{Error, Result};

use super::request::Request;

/// Prefix of a name that is an environment variable instead of a mark in the command.
pub(super) const VARIABLE: &str = "env:";

/// Returns the request of a point: replaces `{NAME}` in the command by the value, and sets the script's variable for `env:NAME`.
///
/// # Errors
/// A name that is nowhere in the command; an invalid variable, or one that the rehearsal itself needs.
pub fn at_point(request: &Request, point: &[(String, String)]) -> Result<Request> {
    let mut request = request.clone();
    for (name, value) in point {
        match name.strip_prefix(VARIABLE) {
            Some(variable) => {
                if variable.is_empty() || variable.contains(['=', '\0']) || value.contains('\0') {
                    return Err(Error::usage(format!("-L {name}"), "names no variable"));
                }
                if OWN.contains(&variable) || variable.starts_with("VRAMLAB_REHEARSAL_") {
                    return Err(Error::usage(format!("-L {name}"), "the rehearsal itself needs this variable"));
                }
                request.environment.push((variable.into(), value.into()));
            }
            None => {
                let mark = format!("{{{name}}}");
                let mut found = false;
                for word in &mut request.command {
                    let replaced = replaced(word, &mark, value);
                    found |= replaced != *word;
                    *word = replaced;
                }
                if !found {
                    let problem =
                        format!("{mark} is nowhere in the command; env:{name} sets a variable of the script's");
                    return Err(Error::usage(format!("-L {name}"), problem));
                }
            }
        }
    }
    Ok(request)
}

/// Variables that the rehearsal sets.
const OWN: [&str; 4] = ["LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "TRITON_LIBCUDA_PATH"];

/// Replaces every occurrence of a mark in a word by a value.
fn replaced(word: &OsString, mark: &str, value: &str) -> OsString {
    let (mut rest, mark) = (word.as_bytes(), mark.as_bytes());
    let mut out = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(mark.len()).position(|window| window == mark) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(value.as_bytes());
        rest = &rest[at + mark.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// Value that was rehearsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// The value.
    pub(super) value: u64,
    /// Whether its upper figure fits; `None` if the rehearsal could not tell.
    pub(super) fits: Option<bool>,
    /// Bytes of the card that it takes at most.
    pub(super) most_bytes: u64,
}

/// Next step of the search for the largest value that fits, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Rehearse this value.
    Try(u64),
    /// The search is done: this value fits, and the next one does not. Both were rehearsed. `None`: not even 1 fits.
    Largest(Option<u64>),
    /// The search gave up: the first value fits, and the second, if any, does not. Further values were not tried.
    Between(u64, Option<u64>),
    /// The script's memory does not grow with the value.
    DoesNotGrow,
    /// A larger value fits where a smaller one does not.
    NotInOrder,
    /// The rehearsal could not tell whether this value fits.
    Unknown(u64),
}

/// Maximum number of rehearsals of a search.
const MOST: usize = 14;

/// Decides the next step from the values `tried`, of which the search itself chose `searched`. A line through the values that fit gives the
/// guess; halving ensures that the search ends.
pub(super) fn next(tried: &[Tried], searched: usize, total_bytes: u64) -> Next {
    if let Some(unknown) = tried.iter().find(|tried| tried.fits.is_none()) {
        return Next::Unknown(unknown.value);
    }
    let of = |fits: bool| tried.iter().filter(move |tried| tried.fits == Some(fits));
    let mut fitting: Vec<&Tried> = of(true).collect();
    fitting.sort_by_key(|tried| tried.value);
    let above = of(false).map(|tried| tried.value).min();
    let Some(last) = fitting.last() else {
        return match above {
            None | Some(0 | 1) => Next::Largest(None),
            Some(above) => Next::Try(above / 2),
        };
    };
    let limit = law(&fitting, total_bytes);
    let Some(after) = last.value.checked_add(1) else { return Next::DoesNotGrow };
    match (above, limit) {
        (Some(above), _) if above <= last.value => Next::NotInOrder,
        (Some(above), _) if above == after => Next::Largest(Some(last.value)),
        (above, _) if searched >= MOST => Next::Between(last.value, above),
        (None, Some(Limit::Never)) => Next::DoesNotGrow,
        (None, Some(Limit::At(limit))) => {
            // A card that is nearly full is used ever better. The line then names the next value each time, so the steps double.
            let stride = 1_u64 << searched.saturating_sub(1).min(MOST);
            let limit = limit.max(last.value.saturating_add(stride));
            Next::Try(limit.clamp(after, last.value.saturating_mul(64).max(after)))
        }
        (None, None) => Next::Try(last.value.saturating_mul(2).max(1)),
        (Some(above), limit) => {
            let middle = last.value + (above - last.value) / 2;
            let guess = match limit {
                Some(Limit::At(limit)) if searched % 3 != 2 => limit.clamp(after, above - 1),
                _ => middle,
            };
            // The line's value was tried and is too large, because the line ignores fragmentation: take the middle.
            Next::Try(if guess == above - 1 && above - last.value > 3 { middle } else { guess })
        }
    }
}

/// Value at which a card is full.
enum Limit {
    At(u64),
    Never,
}

/// Draws a line through the smallest and the largest value that fit. Returns the largest value for which the line stays within the card.
/// Near the card's end the allocator frees cached memory before it asks for more, so two values there do not show the slope.
fn law(fitting: &[&Tried], total_bytes: u64) -> Option<Limit> {
    let [a, .., b] = fitting else { return None };
    let (bytes, values) = (b.most_bytes as f64 - a.most_bytes as f64, (b.value - a.value) as f64);
    if values <= 0.0 {
        return None;
    }
    let slope = bytes / values;
    if slope <= 0.0 {
        return Some(Limit::Never);
    }
    let more = (total_bytes.saturating_sub(b.most_bytes) as f64 / slope).floor();
    Some(Limit::At(b.value.saturating_add(more as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for the largest value of a script with these needs.
    fn search(start: &[u64], total: u64, takes: impl Fn(u64) -> u64) -> (Next, usize) {
        let try_one = |value: u64| {
            let most_bytes = takes(value);
            Tried { value, fits: Some(most_bytes <= total), most_bytes: most_bytes.min(total) }
        };
        let mut tried: Vec<Tried> = start.iter().map(|value| try_one(*value)).collect();
        let mut searched = 0;
        loop {
            match next(&tried, searched, total) {
                Next::Try(value) => {
                    assert!(tried.iter().all(|known| known.value != value), "{value} was tried");
                    tried.push(try_one(value));
                    searched += 1;
                }
                found => return (found, searched),
            }
        }
    }

    #[test]
    fn the_largest_value_is_found_and_the_next_one_is_tried() {
        let line = |value| 500 + 37 * value;
        assert_eq!(search(&[1, 2, 4], 10_000, line), (Next::Largest(Some(256)), 2));
        assert_eq!(search(&[1, 2, 1000], 10_000, line).0, Next::Largest(Some(256)));
        assert_eq!(search(&[1], 10_000, line).0, Next::Largest(Some(256)));
        assert_eq!(search(&[900, 1000], 10_000, line).0, Next::Largest(Some(256)));
        assert_eq!(search(&[1, 2], 400, line).0, Next::Largest(None));
        // Needs that grow in steps, with fragmentation, and with a square.
        let steps = |value: u64| 500 + 64 * value.div_ceil(3) * 3;
        assert_eq!(search(&[1, 2, 4], 10_000, steps).0, Next::Largest(Some(147)));
        assert_eq!(search(&[8, 16], 1_000_000, |value| 1000 + 7 * value * value).0, Next::Largest(Some(377)));
        // Close to the card's end a larger value may reserve less.
        let given_back = |value: u64| if value == 256 { 9_000 } else { line(value) };
        assert_eq!(search(&[1, 255], 10_000, given_back).0, Next::Largest(Some(256)));
        // Reserved bytes hardly grow there: the law is always too low.
        let full = |value: u64| if value < 120 { 80 * value } else { 9_600 + value };
        assert_eq!(search(&[16, 32, 48], 9_738, full).0, Next::Largest(Some(138)));
        let pieces = |value: u64| 40 * value + if value > 200 { 900 } else { 0 };
        assert_eq!(search(&[1, 2, 4], 10_000, pieces).0, Next::Largest(Some(227)));
    }

    #[test]
    fn what_cannot_be_found_is_said() {
        assert_eq!(search(&[1, 2, 4], 10_000, |_| 7).0, Next::DoesNotGrow);
        assert_eq!(search(&[1, u64::MAX], 10_000, |_| 7).0, Next::DoesNotGrow);
        assert_eq!(search(&[1, 5], 100, |value| if value == 1 { 200 } else { 50 }).0, Next::NotInOrder);
        let unknown = Tried { value: 3, fits: None, most_bytes: 0 };
        assert_eq!(next(&[unknown], 0, 100), Next::Unknown(3));
    }

    #[test]
    fn every_mark_is_replaced() {
        let word = OsString::from("--out=run-{batch}-{batch}.txt");
        assert_eq!(replaced(&word, "{batch}", "16"), "--out=run-16-16.txt");
        assert_eq!(replaced(&word, "{size}", "16"), word);
    }
}
