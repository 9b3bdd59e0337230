//! Bands that one half of the sources gives, tried on the other half: by them one sees what a calibrated band promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Decides which source is in which half. Any number does.
const SEED: u64 = 50;

/// Rows of one kind from which a range is learnt, at least.
const LEAST_ROWS: usize = 5;

/// How far a card was from what was expected.
pub(super) struct Difference<'a> {
    /// Who published it.
    pub(super) source: &'a str,
    /// What decides how far a card may be.
    pub(super) kind: &'a str,
    /// Percent of reserved memory; positive: the card took more.
    pub(super) percent: f64,
}

/// Differences by kind.
type Kinds<'a> = BTreeMap<&'a str, Vec<f64>>;

/// Writes both directions.
pub(super) fn write(out: &mut String, rows: &[Difference<'_>]) -> std::fmt::Result {
    let halves = split(rows.iter().map(|one| one.source).collect());
    write!(
        out,
        "\n## One half of the sources by the other\n\nNumber {SEED} divides the sources into halves. The rows of a kind in one half (at least {LEAST_ROWS}) give a range of \
         differences from what is expected, in parts of reserved memory. Each end moves outwards by 2/rows of the range, because few rows show little of it, and by 1 % at \
         least. The other half's rows are tried.\n\n\
         | fitted on | kind | rows | range | rows of the other half | inside | above |\n|---|---|---|---|---|---|---|\n"
    )?;
    for (fitted, tried) in [(0, 1), (1, 0)] {
        let (of, others) = (kinds(rows, &halves[fitted]), kinds(rows, &halves[tried]));
        let name = halves[fitted].iter().copied().collect::<Vec<_>>().join(" · ");
        for (kind, rows) in others {
            let Some((least, most)) = of.get(kind).and_then(|known| range(known)) else {
                writeln!(out, "| {name} | {kind} | too few | – | {} | – | – |", rows.len())?;
                continue;
            };
            let share = |n: usize| 100.0 * n as f64 / rows.len() as f64;
            let inside = share(rows.iter().filter(|one| (least..=most).contains(*one)).count());
            let above = share(rows.iter().filter(|one| **one > most).count());
            let count = of[kind].len();
            writeln!(
                out,
                "| {name} | {kind} | {count} | {least:+.1} to {most:+.1} % | {} | {inside:.1} % | {above:.1} % |",
                rows.len()
            )?;
        }
    }
    Ok(())
}

/// Two halves, alternating in an order that looks random and is the same each time.
fn split(sources: BTreeSet<&str>) -> [BTreeSet<&str>; 2] {
    let mut ordered: Vec<&str> = sources.into_iter().collect();
    ordered.sort_by_key(|name| place(name));
    [0, 1].map(|first| ordered.iter().copied().skip(first).step_by(2).collect())
}

/// FNV-1a of the seed and a name.
fn place(name: &str) -> u64 {
    let bytes = SEED.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn kinds<'a>(rows: &[Difference<'a>], sources: &BTreeSet<&str>) -> Kinds<'a> {
    let mut kinds = Kinds::new();
    for one in rows.iter().filter(|one| sources.contains(one.source)) {
        kinds.entry(one.kind).or_default().push(one.percent);
    }
    kinds
}

/// The widened range of these differences.
fn range(rows: &[f64]) -> Option<(f64, f64)> {
    let (least, most) = rows.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), one| (a.min(*one), b.max(*one)));
    let margin = (2.0 * (most - least) / rows.len() as f64).max(1.0);
    (rows.len() >= LEAST_ROWS).then_some((least - margin, most + margin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_share_no_source_and_few_rows_widen_a_range() {
        let [a, b] = split(["one", "two", "three", "four", "five"].into());
        assert_eq!((a.len(), b.len()), (3, 2));
        assert!(a.is_disjoint(&b));
        assert_eq!(range(&[0.0; 4]), None);
        assert_eq!(range(&[0.0, 0.0, 0.0, 0.0, 10.0]), Some((-4.0, 14.0)));
        assert_eq!(range(&[0.0; 100]), Some((-1.0, 1.0)));
    }
}
