//! Fits the bands: how far cards were outside of what was said, by what decides it.
//!
//! One rule for every kind, and no constant for a row. The share of the rows of a kind that may stay outside is small and the same for every kind; each source
//! weighs the same in it, however many rows it has. Few rows widen a band. None is narrower than repeated runs of one program differ, and a library's kind
//! begins as wide as they differ at most: only further sources narrow it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use lab_base::bands::{BANDS, Band, Basis};

use super::judged::{Judged, Needed, judged, kind};
use super::tables::{answers, rows};

/// The file of the bands in use.
pub const FITTED: &str = "lab/base/src/bands/fitted.rs";

/// Parts of the weight of a kind that may be below its band, and above it.
pub(super) const MAY_BE_BELOW: f64 = 0.02;
pub(super) const MAY_BE_ABOVE: f64 = 0.01;

/// Rows of one kind from which a band is fitted, at least.
pub(super) const LEAST_ROWS: usize = 5;

/// Thousandths by which a band goes beyond what was seen, at least.
pub(super) const LEAST_MARGIN: f64 = 5.0;

/// Thousandths by which the reserved memory of 100 programs differed from run to run on eight H100: nine of ten programs, and the most. No row here is from them.
pub(super) const NINE_OF_TEN_DIFFER: u64 = 44;
pub(super) const THE_MOST_DIFFER: u64 = 259;

/// Bands that no row here decides.
const GIVEN: [(Basis, u64, &str); 2] = [
    (Basis::Ranks, NINE_OF_TEN_DIFFER, "repeated runs of 100 programs on eight H100, nine of ten"),
    (Basis::Own, 0, "the figures are this program's own"),
];

/// Compute capability, times ten, of the cards of the rows.
const CAPABILITIES: [(&str, u32); 8] = [
    ("A100 40 GB", 80),
    ("A100 80 GB", 80),
    ("H100", 90),
    ("H200", 90),
    ("RTX 3060", 86),
    ("RTX 3090 Ti", 86),
    ("RTX 4060", 89),
    ("RTX PRO 5000", 120),
];

/// A fitted band, in thousandths, and the rows that it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) basis: Basis,
    pub(super) below: u64,
    pub(super) above: u64,
    pub(super) from: String,
}

impl Fit {
    pub(super) fn band(&self) -> Band {
        Band { basis: self.basis, below: self.below, above: self.above, source: "" }
    }
}

/// The kind whose rows a kind is fitted with. Workspaces that were measured, and those that cuDNN named with no range, are a card's own (all of 9,013 on an
/// H200), so PyTorch's requests decide beside them. Where only cuBLASLt may take more, as before capability 9.0, the rows are those of such cards, although
/// another release of cuDNN named them.
fn fitted_with(basis: Basis) -> Basis {
    match basis {
        Basis::WorkspacesMeasured | Basis::WorkspacesAsked => Basis::Requests,
        Basis::WorkspacesAskedInARange => Basis::WorkspacesOfAnotherRelease,
        other => other,
    }
}

/// The narrowest band of a kind with rows of so many sources.
///
/// Of `sources + 1` sources in any order the last is the farthest on one side or the other in two of `sources + 1` cases. A library's kind keeps that part of
/// the most that programs differ.
fn least(basis: Basis, sources: usize) -> (u64, u64) {
    match basis {
        Basis::Own => (0, 0),
        Basis::Requests
        | Basis::RequestsElsewhere
        | Basis::WorkspacesMeasured
        | Basis::WorkspacesAsked
        | Basis::Ranks => (0, NINE_OF_TEN_DIFFER),
        _ => {
            let kept = (2 * THE_MOST_DIFFER).div_ceil(sources as u64 + 1).min(THE_MOST_DIFFER);
            (kept, kept)
        }
    }
}

fn widest(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.max(b.0), a.1.max(b.1))
}

/// Fits every kind with these rows.
pub(super) fn fit(needed: &[Needed<'_>]) -> Vec<Fit> {
    // An answer with measured workspaces has a range before any band: it does not say how narrow a band may be.
    let rows =
        |basis: Basis| -> Vec<&Needed<'_>> { needed.iter().filter(|one| one.basis == fitted_with(basis)).collect() };
    let own: BTreeMap<String, (u64, u64)> =
        BANDS.iter().filter_map(|band| Some((kind(band.basis), ends(&rows(band.basis))?))).collect();
    let requests = own.get(&kind(Basis::Requests)).copied().unwrap_or_default();
    let of_all = own.values().copied().fold((0, 0), widest);
    let of = |basis: Basis| {
        let (rows, own) = (rows(basis), own.get(&kind(basis)));
        let (ends, from) = match (GIVEN.iter().find(|given| given.0 == basis), own) {
            (Some((_, both, from)), _) => ((*both, *both), (*from).to_string()),
            (None, Some(ends)) => (*ends, sources(&rows)),
            (None, None) if basis == Basis::RequestsElsewhere => elsewhere(needed).unwrap_or((of_all, String::new())),
            (None, None) => (of_all, "too few rows, so the widest of all".into()),
        };
        // PyTorch's requests have a part in everything but its own kernels.
        let requests = if basis == Basis::Own { (0, 0) } else { requests };
        let named: BTreeSet<&str> = own.iter().flat_map(|_| &rows).map(|one| one.source).collect();
        let (seen, least) = (widest(ends, requests), least(basis, named.len()));
        let (below, above) = widest(seen, least);
        let differ = if (below, above) == seen { "" } else { ", and no narrower than runs of one program differ" };
        Fit { basis, below, above, from: from + differ }
    };
    BANDS.iter().map(|band| of(band.basis)).collect()
}

/// The widest of the bands that single cards give.
fn elsewhere(needed: &[Needed<'_>]) -> Option<((u64, u64), String)> {
    let cards: BTreeSet<&str> = needed.iter().map(|one| one.card).collect();
    let of = |card: &&str| {
        let rows = needed.iter().filter(|one| one.basis == Basis::Requests && one.card == *card);
        ends(&rows.collect::<Vec<_>>())
    };
    let ends: Vec<(u64, u64)> = cards.iter().filter_map(of).collect();
    let both = ends.iter().copied().reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
    Some((both, format!("the widest of {} cards", ends.len())))
}

/// Both ends of a band, in thousandths; `None` of too few rows.
fn ends(rows: &[&Needed<'_>]) -> Option<(u64, u64)> {
    let below = end(rows, |one| one.below, MAY_BE_BELOW);
    let above = end(rows, |one| one.above, MAY_BE_ABOVE);
    let margin = (2.0 * (below + above) / rows.len() as f64).max(LEAST_MARGIN);
    (rows.len() >= LEAST_ROWS).then(|| ((below + margin).ceil() as u64, (above + margin).ceil() as u64))
}

/// The least end that leaves at most this part of the weight outside. Each source weighs the same.
fn end(rows: &[&Needed<'_>], needs: fn(&Needed<'_>) -> f64, may_be_outside: f64) -> f64 {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for one in rows {
        *sizes.entry(one.source).or_default() += 1;
    }
    let mut left = may_be_outside * sizes.len() as f64;
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| needs(b).total_cmp(&needs(a)));
    for one in rows {
        left -= 1.0 / sizes[one.source] as f64;
        if left < 0.0 {
            return needs(one).max(0.0);
        }
    }
    0.0
}

/// `12 of FakeGPU, 52 of xMem`.
fn sources(rows: &[&Needed<'_>]) -> String {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for one in rows {
        *sizes.entry(one.source).or_default() += 1;
    }
    let of: Vec<String> = sizes.iter().map(|(source, rows)| format!("{rows} of {source}")).collect();
    of.join(", ")
}

/// What the rows that were trained need.
pub(super) fn needed<'a>(judged: &'a [Judged<'_>]) -> Vec<Needed<'a>> {
    judged.iter().filter(|one| !one.row.ran_out).map(Judged::needed).collect()
}

/// The bands by the rows that there are.
///
/// # Errors
/// Tables that cannot be read.
pub(super) fn fits(root: &Path) -> anyhow::Result<Vec<Fit>> {
    let (rows, answers) = (rows(root)?, answers(root)?);
    Ok(fit(&needed(&judged(&rows, &answers, &BANDS))))
}

/// The text of the file of the bands.
///
/// # Errors
/// Tables that cannot be read.
pub fn fitted(root: &Path) -> anyhow::Result<String> {
    let fits = fits(root)?;
    let mut out = String::from(
        "//! Made by `cargo xtask published`, which fits each band with measured trainings (`docs/accuracy.md`).\n\n\
         /// All bands: what decides, thousandths below and above, trainings that it was fitted with.\n",
    );
    writeln!(out, "#[rustfmt::skip]\npub(super) const FITTED: [(&str, u64, u64, &str); {}] = [", fits.len())?;
    for Fit { basis, below, above, from } in &fits {
        writeln!(out, "    (\"{basis:?}\", {below}, {above}, {from:?}),")?;
    }
    let of_rows: BTreeSet<String> = rows(root)?.into_iter().map(|row| row.card).collect();
    let measured: BTreeSet<u32> =
        CAPABILITIES.iter().filter(|(card, _)| of_rows.contains(*card)).map(|(_, sm)| *sm).collect();
    let measured: Vec<String> = measured.iter().map(u32::to_string).collect();
    write!(
        out,
        "];\n\n/// Compute capabilities, times ten, of the cards that trained them.\npub const MEASURED: [u32; {}] = [{}];\n",
        measured.len(),
        measured.join(", ")
    )?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(source: &'static str, above: &[f64]) -> Vec<Needed<'static>> {
        let of =
            |above: &f64| Needed { source, card: "A100 40 GB", basis: Basis::Requests, below: -1.0, above: *above };
        above.iter().map(of).collect()
    }

    fn ends_of(rows: &[Needed<'_>]) -> Option<(u64, u64)> {
        ends(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_band_leaves_a_small_part_of_the_weight_outside_and_each_source_weighs_the_same() {
        let mut many = vec![0.0; 200];
        (many[7], many[9]) = (300.0, 200.0);
        assert_eq!(ends_of(&rows("many", &many)), Some((5, 5)), "one of a hundred is left out");
        many[11] = 100.0;
        assert_eq!(ends_of(&rows("many", &many)), Some((5, 105)), "not three of two hundred");
        let few = rows("few", &[0.0, 0.0, 0.0, 0.0, 40.0]);
        let both: Vec<_> = rows("many", &many).into_iter().chain(few).collect();
        assert_eq!(ends_of(&both), Some((5, 45)), "a row of a small source weighs more");
    }

    #[test]
    fn few_rows_widen_a_band_and_too_few_give_none() {
        assert_eq!(ends_of(&rows("few", &[0.0; 4])), None);
        assert_eq!(ends_of(&rows("few", &[0.0, 0.0, 0.0, 0.0, 100.0])), Some((40, 140)));
    }

    #[test]
    fn a_kind_without_rows_has_the_widest_band() {
        let found = fit(&rows("few", &[0.0, 0.0, 0.0, 0.0, 100.0]));
        let of = |basis: Basis| found.iter().find(|fit| fit.basis == basis).unwrap();
        assert_eq!((of(Basis::Requests).below, of(Basis::Requests).above), (40, 140));
        assert_eq!((of(Basis::Unknown).below, of(Basis::Unknown).above), (THE_MOST_DIFFER, THE_MOST_DIFFER));
        assert_eq!((of(Basis::Own).below, of(Basis::Ranks).above), (0, 140));
    }

    #[test]
    fn only_further_sources_narrow_what_a_library_decides() {
        let of = |sources: &[&'static str]| {
            let rows = sources.iter().flat_map(|source| rows(source, &[0.0; 9]));
            let rows: Vec<_> = rows.map(|one| Needed { basis: Basis::WorkspacesBounded, ..one }).collect();
            let found = fit(&rows).into_iter().find(|fit| fit.basis == Basis::WorkspacesBounded).unwrap();
            assert!(found.from.ends_with("runs of one program differ"), "{}", found.from);
            (found.below, found.above)
        };
        assert_eq!(of(&["a"]), (259, 259), "one source says nothing of the next");
        assert_eq!(of(&["a", "b", "c"]), (130, 130));
        assert_eq!(of(&["a", "b", "c", "d", "e", "f"]), (74, 74));
        assert_eq!(least(Basis::Requests, 1), (0, NINE_OF_TEN_DIFFER));
    }
}
