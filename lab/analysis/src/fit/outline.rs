//! The law in few lines: what a reader can keep in mind, and by how much it is off.
//!
//! The pieces of a law are exact, and many where a buffer grows in steps. Here neighbours are one straight stretch as long as that is off by no more than one
//! hundredth anywhere.

use super::law::{Law, Piece};

/// A stretch is off by at most one part in this many of the peak.
const PART: i64 = 100;

/// Sizes at most this far apart are taken one by one: a parabola through three of them says nothing about a fourth.
const NARROW: usize = 3;

/// Sizes from `from` to `to` whose peak grows approximately linearly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first size.
    pub from: usize,
    /// The last size.
    pub to: usize,
    /// Bytes at the first size.
    pub bytes: i64,
    /// Bytes per further size, rounded.
    pub slope: i64,
    /// Largest error in bytes; 0 if exact.
    pub off_bytes: u64,
    /// Phase, operator and module of the peak at the last size.
    pub last: Piece,
}

/// A size, its peak, and the piece that contains it.
type Point<'a> = (usize, i64, &'a Piece);

/// Returns the law as stretches; `None` if it is curved.
pub fn outline(law: &Law) -> Option<Vec<Stretch>> {
    let wide = |piece: &&Piece| piece.to - piece.from >= NARROW;
    if law.pieces.iter().filter(wide).any(|piece| piece.square != 0) {
        return None;
    }
    let points: Vec<Point> = law.pieces.iter().flat_map(points).collect();
    let mut out = Vec::new();
    let mut rest = &points[..];
    while let [first, ..] = rest {
        // Two sizes are always on a line: a third is needed, or a piece that covers both.
        let is_one = |end: &usize| *end > 1 || std::ptr::eq(first.2, rest[*end].2);
        let end = (1..rest.len()).rev().filter(is_one).find(|&end| off_bytes(&rest[..=end]).is_some()).unwrap_or(0);
        let last = rest[end];
        out.push(Stretch {
            from: first.0,
            to: last.0,
            bytes: first.1,
            slope: slope(*first, last).round() as i64,
            off_bytes: off_bytes(&rest[..=end]).unwrap_or(0),
            last: last.2.clone(),
        });
        rest = &rest[end + 1..];
    }
    Some(out)
}

/// Returns the sizes of a piece to check: it is straight between its ends.
fn points(piece: &Piece) -> Vec<Point<'_>> {
    let sizes: Vec<usize> = match piece.to - piece.from {
        0..NARROW => (piece.from..=piece.to).collect(),
        _ => vec![piece.from, piece.to],
    };
    sizes.into_iter().map(|size| (size, piece.requested_bytes(size), piece)).collect()
}

fn slope(first: Point<'_>, last: Point<'_>) -> f64 {
    (last.1 - first.1) as f64 / (last.0 - first.0).max(1) as f64
}

/// Largest error of the straight line through the ends; `None` if it is too large.
fn off_bytes(points: &[Point<'_>]) -> Option<u64> {
    let (&first, &last) = (points.first()?, points.last()?);
    let slope = slope(first, last);
    let off = |&(size, bytes, _): &Point<'_>| {
        let line = first.1 as f64 + slope * (size - first.0) as f64;
        let off = (line - bytes as f64).abs().round() as u64;
        (off <= bytes.unsigned_abs() / PART as u64).then_some(off)
    };
    points.iter().map(off).try_fold(0, |most, off| Some(most.max(off?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(from: usize, to: usize, constant: i64, slope: i64, square: i64) -> Piece {
        Piece { from, to, constant, slope, square, phase: "backward".into(), op: "mm".into(), scope: "fc".into() }
    }

    fn outlined(pieces: Vec<Piece>) -> Option<Vec<[i64; 5]>> {
        let stretches = outline(&Law { pieces, runs: 0, complete: true })?;
        Some(stretches.iter().map(|s| [s.from as i64, s.to as i64, s.bytes, s.slope, s.off_bytes as i64]).collect())
    }

    #[test]
    fn single_sizes_on_a_line_are_one_stretch() {
        let line = || vec![piece(1, 1, 11_500, 0, 0), piece(2, 2, 12_000, 0, 0), piece(3, 40, 11_000, 500, 0)];
        assert_eq!(outlined(line()).unwrap(), [[1, 40, 11_500, 500, 0]]);
        // Another first size becomes a stretch of its own.
        let mut other = line();
        other[0].constant = 20_000;
        assert_eq!(outlined(other).unwrap(), [[1, 1, 20_000, 0, 0], [2, 40, 12_000, 500, 0]]);
    }

    #[test]
    fn steps_and_parabolas_through_three_sizes_are_smoothed_and_the_error_is_said() {
        // From the law of a perceptron: constants of dozens of GiB on both sides of zero.
        let pieces = vec![
            piece(1000, 1151, 66_490_000, 1800, 0),
            piece(1152, 1154, 68_600_000 - 32_768 * 1153 * 1153, 2 * 32_768 * 1153, -32_768),
            piece(1155, 1214, 66_550_000, 1800, 0),
        ];
        assert_eq!([1152, 1153].map(|n| pieces[1].requested_bytes(n)), [68_567_232, 68_600_000]);
        let found = outlined(pieces).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0][4] > 0 && found[0][4] < 690_000, "{found:?}");
    }

    #[test]
    fn what_is_curved_has_none() {
        assert_eq!(outlined(vec![piece(1, 1024, 7, 3, 2)]), None);
    }
}
