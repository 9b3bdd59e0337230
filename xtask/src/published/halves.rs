//! Bands that one half of the sources gives, tried on the other half: by them one sees what the rule of the fit promises.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use lab_base::bands::{BANDS, Band};

use super::fit::{
    Fit, LEAST_MARGIN, LEAST_ROWS, MAY_BE_ABOVE, MAY_BE_BELOW, NINE_OF_TEN_DIFFER, THE_MOST_DIFFER, fit, needed,
};
use super::judged::{Needed, judged, kind};
use super::tables::{answers, rows};

/// Decides which source is in which half of the table. Any number does.
const SEED: u64 = 50;

/// What came of the other half: parts of a hundred, each source weighing the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Rows inside their band.
    pub inside: f64,
    /// Rows above it.
    pub above: f64,
}

/// Writes both directions, and the sums over all halves.
pub(super) fn write(out: &mut String, rows: &[Needed<'_>]) -> std::fmt::Result {
    let sources: BTreeSet<&str> = rows.iter().map(|one| one.source).collect();
    let [a, b] = split(sources.clone());
    let percent = |thousandths: u64| thousandths as f64 / 10.0;
    write!(
        out,
        "\n## One half of the sources by the other\n\nThe rule of the fit leaves at most {:.0} % of the weight of a kind below its band and {:.0} % above it. Each source \
         weighs the same. A band goes 2/rows of itself beyond that, because few rows show little of it, and {:.1} % at least. A kind with fewer than {LEAST_ROWS} rows has the \
         widest band.\n\n\
         No band is narrower than one program differs from run to run. The reserved memory of 100 programs on eight H100 differed by {:.1} % in nine of ten, and by {:.1} % at most. \
         None of them is a row here. So the upper figure is {:.1} % above at least. What a library decides begins at {:.1} % on both sides. With rows of k sources it keeps \
         2/(k+1) of that: of k+1 sources, the last is the farthest on one side in two of k+1 cases.\n\n\
         The bands in use are fitted with all sources by this rule. Number {SEED} divides the sources into halves here. One half fits, all rows of the other are tried.\n\n\
         | fitted on | bands | inside | above |\n|---|---|---|---|\n",
        100.0 * MAY_BE_BELOW,
        100.0 * MAY_BE_ABOVE,
        LEAST_MARGIN / 10.0,
        percent(NINE_OF_TEN_DIFFER),
        percent(THE_MOST_DIFFER),
        percent(NINE_OF_TEN_DIFFER),
        percent(THE_MOST_DIFFER),
    )?;
    for (fitted, others) in [(&a, &b), (&b, &a)] {
        let (bands, Tried { inside, above }) = tried(rows, fitted, others);
        let name = fitted.iter().copied().collect::<Vec<_>>().join(" · ");
        let used: BTreeSet<String> = rows_of(rows, others).iter().map(|one| kind(one.basis)).collect();
        let bands: Vec<String> = bands
            .iter()
            .filter(|fit| used.contains(&kind(fit.basis)))
            .map(|Fit { basis, below, above, .. }| {
                format!("{} -{:.1} to +{:.1} %", kind(*basis), percent(*below), percent(*above))
            })
            .collect();
        writeln!(out, "| {name} | {} | {inside:.1} % | {above:.1} % |", bands.join(" · "))?;
    }
    let all = of_all_halves(rows);
    let sorted = |part: fn(&Tried) -> f64| {
        let mut values: Vec<f64> = all.iter().map(part).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let middle = |values: &[f64]| values.get(values.len() / 2).copied().unwrap_or(0.0);
    let (inside, above) = (sorted(|one| one.inside), sorted(|one| one.above));
    writeln!(
        out,
        "\nOver all {} halves the other half is {:.1} % inside in the median ({:.1} % at least) and {:.1} % above ({:.1} % at most). The rule was chosen with these halves in sight: \
         before, a half left 77 % of the other inside at least and 11 % above at most. New sources test it.",
        all.len(),
        middle(&inside),
        inside.first().copied().unwrap_or(0.0),
        middle(&above),
        above.last().copied().unwrap_or(0.0),
    )
}

/// What the bands of every half are to the other one.
///
/// # Errors
/// Tables that cannot be read.
pub fn tried_halves(root: &Path) -> anyhow::Result<Vec<Tried>> {
    let (rows, answers) = (rows(root)?, answers(root)?);
    Ok(of_all_halves(&needed(&judged(&rows, &answers, &BANDS))))
}

fn of_all_halves(rows: &[Needed<'_>]) -> Vec<Tried> {
    let sources: BTreeSet<&str> = rows.iter().map(|one| one.source).collect();
    halves(&sources).iter().map(|(fitted, others)| tried(rows, fitted, others).1).collect()
}

fn rows_of<'a>(rows: &[Needed<'a>], sources: &BTreeSet<&str>) -> Vec<Needed<'a>> {
    rows.iter().filter(|one| sources.contains(one.source)).copied().collect()
}

/// The bands of one half, and what they are to the other one.
fn tried(rows: &[Needed<'_>], fitted: &BTreeSet<&str>, others: &BTreeSet<&str>) -> (Vec<Fit>, Tried) {
    let bands = fit(&rows_of(rows, fitted));
    let (mut inside, mut above) = (0.0, 0.0);
    for source in others {
        let own = rows_of(rows, &BTreeSet::from([*source]));
        let share = |is: &dyn Fn(&Needed<'_>, &Band) -> bool| {
            let band = |one: &Needed<'_>| bands.iter().find(|fit| fit.basis == one.basis).map(Fit::band);
            let counted = own.iter().filter(|one| band(one).is_some_and(|band| is(one, &band))).count();
            100.0 * counted as f64 / (own.len() * others.len()).max(1) as f64
        };
        inside += share(&|one, band| !one.is_above(band) && !one.is_below(band));
        above += share(&|one, band| one.is_above(band));
    }
    (bands, Tried { inside, above })
}

/// Two halves, alternating in an order that looks random and is the same each time.
fn split(sources: BTreeSet<&str>) -> [BTreeSet<&str>; 2] {
    let mut ordered: Vec<&str> = sources.into_iter().collect();
    ordered.sort_by_key(|name| place(name));
    [0, 1].map(|first| ordered.iter().copied().skip(first).step_by(2).collect())
}

/// Every half, with the other one.
fn halves<'a>(sources: &BTreeSet<&'a str>) -> Vec<(BTreeSet<&'a str>, BTreeSet<&'a str>)> {
    let all: Vec<&str> = sources.iter().copied().collect();
    let chosen = (0_u32..1 << all.len()).filter(|bits| bits.count_ones() as usize == all.len() / 2);
    let half = |bits: u32, wanted: bool| {
        let is_in = |place: usize| (bits >> place & 1 == 1) == wanted;
        all.iter().enumerate().filter(|(place, _)| is_in(*place)).map(|(_, name)| *name).collect()
    };
    chosen.map(|bits| (half(bits, true), half(bits, false))).collect()
}

/// FNV-1a of the seed and a name.
fn place(name: &str) -> u64 {
    let bytes = SEED.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use lab_base::bands::Basis;

    use super::*;

    #[test]
    fn the_halves_share_no_source() {
        let sources = BTreeSet::from(["one", "two", "three", "four", "five"]);
        let [a, b] = split(sources.clone());
        assert_eq!((a.len(), b.len()), (3, 2));
        assert!(a.is_disjoint(&b));
        let all = halves(&sources);
        assert_eq!(all.len(), 10);
        assert!(all.iter().all(|(fitted, others)| fitted.is_disjoint(others) && fitted.len() + others.len() == 5));
    }

    #[test]
    fn what_the_other_half_shows_beyond_a_band_is_counted() {
        let row = |source, above| Needed { source, card: "H100", basis: Basis::Requests, below: 0.0, above };
        let rows: Vec<_> =
            [0.0; 6].map(|above| row("a", above)).into_iter().chain([row("b", 44.0), row("b", 45.0)]).collect();
        let (_, tried) = tried(&rows, &BTreeSet::from(["a"]), &BTreeSet::from(["b"]));
        assert_eq!((tried.inside, tried.above), (50.0, 50.0));
    }
}
