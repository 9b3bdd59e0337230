//! A script for several values (`vramlab-rehearsal-scan-1`).

use lab_base::figures::{counted, short};
use lab_base::section::{Cell, Chart, Section, Series, Shape, Table, Tries};
use serde::{Deserialize, Serialize};

use super::findings::Findings;
use super::rehearsal::{RehearsalResult, RehearsedGpu, RehearsedRank};
use super::shard::Shard;

/// A scan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsalScanResult {
    /// Names of the scanned values, in order.
    pub parameters: Vec<String>,
    /// The command, with marks for the values.
    pub command: Vec<String>,
    /// The card.
    pub gpu: RehearsedGpu,
    /// True if it was stopped before the end.
    pub interrupted: bool,
    /// Rehearsed values, in order.
    pub points: Vec<RehearsalPoint>,
    /// The peak of allocated bytes as a law of the value; empty if there is none.
    pub law: Vec<LawPiece>,
    /// The largest value that fits; null if it was not searched for.
    pub largest: Option<LargestValue>,
    /// Changes to try if something does not fit, each rehearsed; null if everything fits or nothing helps.
    #[serde(default)]
    pub tries: Option<Tries>,
    /// The part of a scan that it is; absent for a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// A point.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsalPoint {
    /// The values, in the order of the parameters.
    pub values: Vec<String>,
    /// True if the search for the largest value asked for it.
    pub searched: bool,
    /// Result of the rehearsal.
    pub rehearsal: RehearsalResult,
}

/// Values over which the peak is a straight line: bytes = constant + slope * value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LawPiece {
    /// The smallest value.
    pub from: u64,
    /// The largest.
    pub to: u64,
    /// Points on it.
    pub points: usize,
    /// Bytes that do not depend on the value.
    pub constant: f64,
    /// Bytes for each unit.
    pub slope: f64,
    /// Largest distance of a point from it. Bytes.
    pub off_by: f64,
}

/// The largest value whose upper figure fits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LargestValue {
    /// The value; null if none is known.
    pub value: Option<u64>,
    /// True if it was rehearsed and fits, and the next one was rehearsed and does not fit surely.
    pub verified: bool,
    /// The largest rehearsed value that fits perhaps; null if none above it does.
    #[serde(default)]
    pub perhaps: Option<u64>,
    /// In a sentence.
    pub in_words: String,
}

/// Number of points that are shown of a long scan, around the first that does not surely fit: an answer stays on the screen.
const SHOWN: usize = 8;

/// A piece may be off by this share of the peak.
const OFF: f64 = 0.005;

impl RehearsalPoint {
    /// Returns the process that took most.
    fn largest(&self) -> Option<&RehearsedRank> {
        self.rehearsal.ranks.iter().max_by_key(|rank| rank.peak_reserved)
    }

    /// Returns the bytes that it takes of the card at most, with all that a process takes besides tensors.
    pub fn most_bytes(&self) -> u64 {
        self.rehearsal.on_card.upper_bytes
    }

    /// Returns the peak of allocated bytes, if the script fits.
    fn allocated(&self) -> Option<u64> {
        self.largest().filter(|_| self.rehearsal.fits_so_far() == Some(true)).map(|rank| rank.peak_allocated)
    }
}

impl RehearsalScanResult {
    /// The only parameter's value at a point, if it is a whole number.
    fn number(&self, point: &RehearsalPoint) -> Option<u64> {
        (self.parameters.len() == 1).then(|| point.values.first()?.parse().ok()).flatten()
    }

    /// Returns the law of the peak of allocated bytes: straight pieces through at least three points each.
    pub fn law_of_points(&self) -> Vec<LawPiece> {
        let known = self.points.iter().filter_map(|point| Some((self.number(point)?, point.allocated()?)));
        let mut points: Vec<(u64, u64)> = known.collect();
        points.sort_unstable();
        points.dedup_by_key(|(value, _)| *value);
        let (mut pieces, mut from) = (Vec::new(), 0);
        while from + 1 < points.len() {
            // As many points as lie on one line, from here on.
            let fits =
                |to: &usize| line(&points[from..*to]).is_some_and(|piece| is_straight(&piece, &points[from..*to]));
            let to = (from + 2..=points.len()).take_while(fits).last().unwrap_or(from + 2);
            pieces.extend(line(&points[from..to]).filter(|piece| piece.points >= 3));
            from = to - 1;
        }
        pieces
    }

    fn rows(&self) -> Table {
        let mut columns: Vec<&str> = self.parameters.iter().map(String::as_str).collect();
        columns.extend(["fits", "allocated at most", "reserved at most", "where it ran out"]);
        let row = |point: &RehearsalPoint| {
            let found = &point.rehearsal;
            let mut row: Vec<Cell> = point.values.iter().map(|value| Cell::Text(value.clone())).collect();
            let fits = match (found.fits, found.fits_surely()) {
                (_, Some(true)) => "yes",
                (_, Some(false)) => "no",
                (Some(_), None) => "perhaps",
                (None, _) if found.fits_so_far() == Some(true) => "perhaps: it grows",
                (None, _) => "?",
            };
            row.push(Cell::Text(fits.into()));
            let whole = |bytes: fn(&RehearsedRank) -> u64| {
                // If the script failed, this is where it stopped, not what it needs.
                Cell::bytes(point.largest().filter(|_| found.fits_so_far() == Some(true)).map(bytes))
            };
            row.extend([whole(|rank| rank.peak_allocated), whole(|rank| rank.peak_reserved)]);
            let oom = found.ranks.iter().find_map(|rank| rank.oom.as_ref()).filter(|_| found.fits == Some(false));
            let ended = found.exception.as_ref().filter(|_| found.fits.is_none());
            row.push(Cell::Text(match (oom, ended) {
                // The file's name is enough to find the line.
                (Some(oom), _) => format!("{}, step {}", name(&oom.place), oom.steps + 1),
                (None, Some(exception)) => exception.lines().next().unwrap_or_default().chars().take(60).collect(),
                (None, None) => String::new(),
            }));
            row
        };
        Table::new("", &columns, self.in_order().into_iter().map(row).collect())
    }

    /// The points by their value, if it is a whole number.
    fn in_order(&self) -> Vec<&RehearsalPoint> {
        let mut points: Vec<&RehearsalPoint> = self.points.iter().collect();
        points.sort_by_key(|point| self.number(point));
        points
    }

    /// The place of the first point, in order, that does not surely fit; the number of all if every one does.
    fn first_in_doubt(&self) -> usize {
        let is_in_doubt = |point: &&RehearsalPoint| point.rehearsal.fits_surely() != Some(true);
        self.in_order().iter().position(is_in_doubt).unwrap_or(self.points.len())
    }

    fn chart(&self) -> Option<Chart> {
        let of = |bytes: fn(&RehearsedRank) -> u64| -> Vec<(f64, f64)> {
            let fits = self.points.iter().filter(|point| point.rehearsal.fits_so_far() == Some(true));
            let known = fits.filter_map(|point| Some((self.number(point)? as f64, bytes(point.largest()?) as f64)));
            let mut points: Vec<(f64, f64)> = known.collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let series = |name: &str, color, points| Series { name: name.into(), points, color, shape: Shape::Line };
        let (allocated, reserved) = (of(|rank| rank.peak_allocated), of(|rank| rank.peak_reserved));
        let room = self.gpu.room();
        (allocated.len() > 1).then(|| Chart {
            title: "The peak".into(),
            x: self.parameters.first().cloned().unwrap_or_default(),
            labels: Vec::new(),
            series: vec![series("allocated", 0, allocated), series("reserved", 1, reserved)],
            bytes: true,
            limit: Some((format!("for PyTorch on {}", self.gpu.name), room as f64)),
        })
    }

    fn law_in_words(&self) -> Option<String> {
        let name = self.parameters.first()?;
        let piece = |piece: &LawPiece| {
            let sign = if piece.constant < 0.0 { "-" } else { "" };
            let each = if piece.slope < 0.0 { '-' } else { '+' };
            let off = match piece.off_by {
                off if off < 1.0 => "exact".to_string(),
                off => format!("off by {} at most", short(off as u64)),
            };
            format!(
                "{sign}{} {each} {} for each of {name} from {} to {} ({}, {off})",
                short(piece.constant.abs() as u64),
                short(piece.slope.abs() as u64),
                piece.from,
                piece.to,
                counted(piece.points as u64, "point"),
            )
        };
        let pieces: Vec<String> = self.law.iter().map(piece).collect();
        (!pieces.is_empty()).then(|| format!("Allocated at most: {}.", pieces.join("; ")))
    }

    /// Number of requested points that fit, and of all of them.
    fn fitting(&self) -> (usize, usize) {
        let asked = || self.points.iter().filter(|point| !point.searched);
        (asked().filter(|point| point.rehearsal.fits_surely() == Some(true)).count(), asked().count())
    }

    fn answer(&self) -> String {
        let (fit, all) = self.fitting();
        let unknown = self.points.iter().filter(|point| !point.searched && point.rehearsal.fits.is_none()).count();
        let which = match fit {
            _ if unknown > 0 => format!("{fit} of {all} fit on {}, and of {unknown} it is not known", self.gpu.name),
            _ if all == fit => format!("All {all} fit on {}", self.gpu.name),
            0 => format!("None of {all} fits on {}", self.gpu.name),
            _ => format!("{fit} of {all} fit on {}", self.gpu.name),
        };
        let perhaps = self.points.iter().filter(|point| !point.searched && point.rehearsal.fits_perhaps()).count();
        let which = if perhaps > 0 { format!("{which}, {perhaps} perhaps") } else { which };
        match &self.largest {
            Some(largest) => format!("{} {which}.", largest.in_words),
            None => format!("{which}."),
        }
    }
}

/// Keeps the rows around one; `None` if that is hardly less than all.
fn around(table: &Table, place: usize) -> Option<Table> {
    let all = table.rows.len();
    if all <= SHOWN + 2 {
        return None;
    }
    let from = place.saturating_sub(SHOWN / 2).min(all - SHOWN);
    let mut short = table.clone();
    short.rows = table.rows[from..from + SHOWN].to_vec();
    Some(short)
}

/// The last part of a path.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The line through the first and the last point.
fn line(points: &[(u64, u64)]) -> Option<LawPiece> {
    let (first, last) = (points.first()?, points.last()?);
    let slope = (last.1 as f64 - first.1 as f64) / last.0.checked_sub(first.0).filter(|values| *values > 0)? as f64;
    let constant = first.1 as f64 - slope * first.0 as f64;
    let off = |(value, bytes): &(u64, u64)| (constant + slope * *value as f64 - *bytes as f64).abs();
    let off_by = points.iter().map(off).fold(0.0, f64::max);
    Some(LawPiece { from: first.0, to: last.0, points: points.len(), constant, slope, off_by })
}

fn is_straight(piece: &LawPiece, points: &[(u64, u64)]) -> bool {
    let most = points.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    piece.off_by <= OFF * most as f64
}

impl Findings for RehearsalScanResult {
    const SCHEMA: &'static str = "vramlab-rehearsal-scan-1";

    fn title(&self) -> String {
        let (command, name) = (self.command.join(" "), self.parameters.join(", "));
        match &self.largest {
            Some(LargestValue { value: Some(value), verified: true, .. }) => {
                format!("{name} {value} at most: {command}")
            }
            Some(LargestValue { value: Some(value), .. }) => format!("{name} {value} at least: {command}"),
            _ => {
                let (fit, all) = self.fitting();
                format!("{fit} of {all} fit: {command}")
            }
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut out = vec![Section::Answer(self.answer())];
        out.extend(self.law_in_words().map(Section::Note));
        out.extend(self.tries.clone().map(Section::Try));
        let rows = self.rows();
        match around(&rows, self.first_in_doubt()) {
            Some(short) => {
                let more = Section::Note(format!("{} more values: --full.", rows.rows.len() - SHOWN));
                out.extend([Section::List(short), more, Section::Rest(vec![Section::Table(rows)])]);
            }
            None => out.push(Section::List(rows)),
        }
        out.extend(self.chart().map(Section::Drawing));
        let inexact = self.points.iter().filter(|point| !point.rehearsal.exact).count();
        if inexact > 0 {
            out.push(Section::Note(format!(
                "The figures of {inexact} of {} values have a range, because something was not known. A rehearsal of one value says what.",
                self.points.len()
            )));
        }
        out
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(points: &[(u64, u64)]) -> RehearsalScanResult {
        let point = |(value, bytes): &(u64, u64)| {
            let rank = RehearsedRank { peak_allocated: *bytes, peak_reserved: *bytes, ..RehearsedRank::default() };
            let mut rehearsal = RehearsalResult { fits: Some(true), ranks: vec![rank], ..RehearsalResult::default() };
            rehearsal.gpu.total_bytes = 1 << 30;
            RehearsalPoint { values: vec![value.to_string()], searched: false, rehearsal }
        };
        let points = points.iter().map(point).collect();
        RehearsalScanResult { parameters: vec!["batch".into()], points, ..RehearsalScanResult::default() }
    }

    #[test]
    fn what_is_not_known_is_not_said_not_to_fit() {
        let mut found = scan(&[(1, 1100), (2, 1200)]);
        found.points[1].rehearsal.fits = None;
        assert_eq!(found.answer(), "1 of 2 fit on , and of 1 it is not known.");
        found.points[1].rehearsal.fits = Some(false);
        assert_eq!(found.answer(), "1 of 2 fit on .");
    }

    #[test]
    fn what_fits_only_perhaps_is_no_yes() {
        let found = scan(&[(1, 1100), (2, (1 << 30) - 1000)]);
        assert_eq!(found.answer(), "1 of 2 fit on , 1 perhaps.");
        let fits = found.rows().rows.iter().map(|row| row[1].clone()).collect::<Vec<_>>();
        assert_eq!(fits, ["yes", "perhaps"].map(|word| Cell::Text(word.into())));
    }

    #[test]
    fn the_law_is_made_of_straight_pieces() {
        let law = scan(&[(1, 1100), (2, 1200), (4, 1400), (8, 1800)]).law_of_points();
        assert_eq!((law.len(), law[0].constant, law[0].slope, law[0].off_by), (1, 1000.0, 100.0, 0.0));
        assert_eq!((law[0].from, law[0].to, law[0].points), (1, 8, 4));
        // From 4 on another moment is the peak.
        let law = scan(&[(1, 1100), (2, 1200), (4, 1400), (8, 2600), (16, 5000), (32, 9800)]).law_of_points();
        assert_eq!(law.iter().map(|piece| (piece.from, piece.to)).collect::<Vec<_>>(), [(1, 4), (4, 32)]);
        assert_eq!(law[1].slope, 300.0);
        assert_eq!(scan(&[(1, 5), (2, 9)]).law_of_points(), [], "two points are always on a line");
        assert_eq!(scan(&[(1, 100), (2, 400), (3, 900), (4, 1600)]).law_of_points(), []);
    }
}
