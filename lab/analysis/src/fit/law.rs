//! The exact function peak(size): which moment is the highest at which sizes, and its bytes as a polynomial.
//!
//! Two runs whose events are the same except for their sizes are one program. If its tensors follow polynomials of degree at most two through three
//! runs, and a fourth run agrees, then so does the sum at each moment, and the peak is the upper envelope of those sums. A tensor that grows in steps
//! (the buffer of a reduction) counts with its largest size; if the peak is elsewhere, this does not matter. If it does matter, or if the program
//! itself changes with the size, the interval is halved until neither is true.

use std::rc::Rc;

use lab_base::error::Result;
use memcore::Device;
use rustc_hash::FxHashMap;

use super::trace::{Move, Trace};
use super::{Room, Run};

/// Sizes from `from` to `to` whose peak follows one formula.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Piece {
    /// The first size.
    pub from: usize,
    /// The last size.
    pub to: usize,
    /// Bytes that do not depend on the size.
    pub constant: i64,
    /// Bytes per unit.
    pub slope: i64,
    /// Bytes per unit squared; 0 for a batch.
    pub square: i64,
    /// Phase of the peak.
    pub phase: String,
    /// Operator whose allocation reaches the peak.
    pub op: String,
    /// Module that is running then.
    pub scope: String,
}

impl Piece {
    /// Bytes requested at the peak.
    pub fn requested_bytes(&self, size: usize) -> i64 {
        self.formula().at(size)
    }

    fn formula(&self) -> Polynomial {
        Polynomial { constant: self.constant, slope: self.slope, square: self.square }
    }

    fn is_made_like(&self, other: &Piece) -> bool {
        (&self.phase, &self.op, &self.scope) == (&other.phase, &other.op, &other.scope)
    }
}

/// Peak of the requested bytes as a function of the size.
#[derive(Clone, Debug)]
pub struct Law {
    /// Pieces in ascending order, without gaps.
    pub pieces: Vec<Piece>,
    /// Number of dry runs it took.
    pub runs: usize,
    /// True if each tensor was found to be a polynomial everywhere; otherwise some pieces are single sizes with none known between.
    pub complete: bool,
}

/// Number of dry runs after which the rest stays open.
const MAX_RUNS: usize = 256;

impl Law {
    /// Finds the law for the sizes from `from` to `to`.
    pub fn from_run(run: &Run<'_>, from: usize, to: usize) -> Result<Self> {
        let mut solver = Solver { run, names: None, traces: FxHashMap::default(), pieces: Vec::new(), complete: true };
        solver.solve(from, to)?;
        let runs = solver.traces.len();
        Ok(Self { pieces: joined(solver.pieces), runs, complete: solver.complete })
    }

    /// Peak of the requested bytes for a size; `None` outside of the known sizes.
    pub fn at(&self, size: usize) -> Option<u64> {
        let piece = self.pieces.iter().find(|piece| (piece.from..=piece.to).contains(&size))?;
        u64::try_from(piece.requested_bytes(size)).ok()
    }
}

/// Joins neighbours with the same origin and the same formula. A single size, whose formula is a constant, joins a neighbour whose formula gives the
/// same value.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        let Some(last) = out.last_mut().filter(|last| last.is_made_like(&piece)) else {
            out.push(piece);
            continue;
        };
        let alone = |p: &Piece| p.from == p.to;
        if last.formula() == piece.formula()
            || alone(&piece) && last.requested_bytes(piece.from) == piece.requested_bytes(piece.from)
        {
            last.to = piece.to;
        } else if alone(last) && piece.requested_bytes(last.from) == last.requested_bytes(last.from) {
            *last = Piece { from: last.from, ..piece };
        } else {
            out.push(piece);
        }
    }
    out
}

/// constant + slope·n + square·n²
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Polynomial {
    constant: i64,
    slope: i64,
    square: i64,
}

impl Polynomial {
    /// The polynomial through three points; `None` if a coefficient is not an integer.
    fn through(points: [(usize, u64); 3]) -> Option<Self> {
        let [a, b, c] = points.map(|(n, bytes)| (n as i128, i128::from(bytes)));
        let whole = |dividend: i128, divisor: i128| (dividend % divisor == 0).then(|| dividend / divisor);
        // Newton's divided differences over a common denominator.
        let (ab, bc, ac) = (b.0 - a.0, c.0 - b.0, c.0 - a.0);
        let square = whole((c.1 - b.1) * ab - (b.1 - a.1) * bc, ab * bc * ac)?;
        let slope = whole(b.1 - a.1 - square * (b.0 * b.0 - a.0 * a.0), ab)?;
        let constant = a.1 - slope * a.0 - square * a.0 * a.0;
        let small = |value: i128| i64::try_from(value).ok();
        Some(Self { constant: small(constant)?, slope: small(slope)?, square: small(square)? })
    }

    fn at(&self, n: usize) -> i64 {
        let n = n as i128;
        let value = i128::from(self.constant) + i128::from(self.slope) * n + i128::from(self.square) * n * n;
        i64::try_from(value).unwrap_or(i64::MAX)
    }

    fn add(&mut self, other: Self, sign: i64) {
        self.constant += sign * other.constant;
        self.slope += sign * other.slope;
        self.square += sign * other.square;
    }
}

/// Size of a tensor, or of all tensors at one moment, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Size {
    polynomial: Polynomial,
    /// True if exact; false if only an upper bound.
    exact: bool,
}

/// Bytes held at a moment, and the first event that leads to it.
type Moment = (Size, usize);

struct Solver<'a> {
    run: &'a Run<'a>,
    /// A device that knows the names of phases and modules.
    names: Option<Device>,
    traces: FxHashMap<usize, Rc<Trace>>,
    pieces: Vec<Piece>,
    complete: bool,
}

impl Solver<'_> {
    fn trace(&mut self, size: usize) -> Result<Rc<Trace>> {
        if let Some(trace) = self.traces.get(&size) {
            return Ok(trace.clone());
        }
        let device = (self.run)(size, Room::Endless)?;
        let trace = Rc::new(Trace::from_device(&device, size));
        self.names.get_or_insert(device);
        self.traces.insert(size, trace.clone());
        Ok(trace)
    }

    /// Appends the pieces of `from ..= to` in order.
    fn solve(&mut self, from: usize, to: usize) -> Result<()> {
        let (first, last) = (self.trace(from)?, self.trace(to)?);
        let given_up = self.traces.len() >= MAX_RUNS && to - from > 1;
        if given_up || to - from <= 1 {
            self.complete &= !given_up;
            self.point(&first);
            if from != to {
                self.point(&last);
            }
            return Ok(());
        }
        let middle = from + (to - from) / 2;
        if first.is_like(&last)
            && let Some(sizes) = self.sizes(&first, middle, &last)?
        {
            let mut pieces = Vec::new();
            if self.envelope(&first, &moments(&first.moves, &sizes), from, to, &mut pieces) {
                self.pieces.append(&mut pieces);
                return Ok(());
            }
        }
        self.solve(from, middle)?;
        self.solve(middle + 1, to)
    }

    /// Returns each allocation as a polynomial, or as its maximum; `None` if the runs are not one program.
    fn sizes(&mut self, first: &Trace, middle: usize, last: &Trace) -> Result<Option<Vec<Size>>> {
        let middle = self.trace(middle)?;
        // Any three points lie on a polynomial; a fourth tells.
        let check = self.trace(middle.size + (last.size - middle.size) / 2)?;
        if !middle.is_like(first) || !check.is_like(first) {
            return Ok(None);
        }
        let size = |i: usize| {
            let through = [first, &middle, last].map(|trace: &Trace| (trace.size, trace.requested[i]));
            let polynomial = Polynomial::through(through);
            if let Some(polynomial) = polynomial.filter(|p| p.at(check.size) == check.requested[i] as i64) {
                return Some(Size { polynomial, exact: true });
            }
            let rises =
                [first, &middle, &check, last].windows(2).all(|pair| pair[0].requested[i] <= pair[1].requested[i]);
            let most = Polynomial { constant: last.requested[i] as i64, ..Polynomial::default() };
            rises.then_some(Size { polynomial: most, exact: false })
        };
        Ok((0..first.requested.len()).map(size).collect())
    }

    /// Appends a single size: its peak is a constant.
    fn point(&mut self, trace: &Trace) {
        let constant = |&bytes: &u64| {
            let polynomial = Polynomial { constant: bytes as i64, ..Polynomial::default() };
            Size { polynomial, exact: true }
        };
        let sizes: Vec<Size> = trace.requested.iter().map(constant).collect();
        let mut pieces = Vec::new();
        self.envelope(trace, &moments(&trace.moves, &sizes), trace.size, trace.size, &mut pieces);
        self.pieces.append(&mut pieces);
    }

    /// Finds the highest moment for each size. Returns `false` if a moment is the highest whose sum is only bounded.
    fn envelope(&self, trace: &Trace, moments: &[Moment], from: usize, to: usize, pieces: &mut Vec<Piece>) -> bool {
        let highest = |n: usize| moments.iter().max_by_key(|(sum, at)| (sum.polynomial.at(n), std::cmp::Reverse(*at)));
        let (Some(a), Some(b)) = (highest(from), highest(to)) else { return true };
        if !(a.0.exact && b.0.exact) {
            return false;
        }
        // The maximum of lines is convex in the size: a line that is the highest at both ends is also the highest between. Parabolas are checked in
        // the middle too.
        let middle = from + (to - from) / 2;
        if a.0 == b.0 && highest(middle).is_some_and(|m| m.0 == a.0) {
            pieces.push(self.piece(trace, a, from, to));
            return true;
        }
        if to - from == 1 {
            pieces.extend([self.piece(trace, a, from, from), self.piece(trace, b, to, to)]);
            return true;
        }
        self.envelope(trace, moments, from, middle, pieces) && self.envelope(trace, moments, middle + 1, to, pieces)
    }

    fn piece(&self, trace: &Trace, (sum, at): &Moment, from: usize, to: usize) -> Piece {
        let Polynomial { constant, slope, square } = sum.polynomial;
        let mut piece = Piece { from, to, constant, slope, square, phase: "".into(), op: "".into(), scope: "".into() };
        if let (Some(device), Some(Move::Alloc { op, node, scope, phase })) = (&self.names, trace.moves.get(*at)) {
            device.with_ledger(|ledger| {
                piece.phase = ledger.phase_name(memcore::memory::PhaseId(*phase)).to_string();
                piece.scope = ledger.scope_path(memcore::memory::ScopeId(*scope)).to_string();
                piece.op = memcore::context::label(*node, op);
            });
        }
        piece
    }
}

/// Sums the bytes held at each moment that can be a peak (an allocation not followed by another one), each sum once.
fn moments(moves: &[Move], sizes: &[Size]) -> Vec<Moment> {
    let mut now = Polynomial::default();
    let (mut next, mut inexact) = (0, 0);
    let mut seen: FxHashMap<Size, usize> = FxHashMap::default();
    for (at, step) in moves.iter().enumerate() {
        match step {
            Move::Alloc { .. } => {
                now.add(sizes[next].polynomial, 1);
                inexact += usize::from(!sizes[next].exact);
                next += 1;
                if !matches!(moves.get(at + 1), Some(Move::Alloc { .. })) {
                    seen.entry(Size { polynomial: now, exact: inexact == 0 }).or_insert(at);
                }
            }
            Move::Free(k) => {
                let size = &sizes[*k as usize];
                now.add(size.polynomial, -1);
                inexact -= usize::from(!size.exact);
            }
        }
    }
    let mut moments: Vec<Moment> = seen.into_iter().collect();
    moments.sort_by_key(|(_, at)| *at);
    undominated(moments)
}

/// Removes the moments that stay below another one for every size.
fn undominated(moments: Vec<Moment>) -> Vec<Moment> {
    let above = |a: &Size, b: &Size| {
        let (p, q) = (&a.polynomial, &b.polynomial);
        // A bound does not show that another sum is lower, but an exact sum above a bound is above the bounded sum.
        a.exact && p != q && p.constant >= q.constant && p.slope >= q.slope && p.square >= q.square
    };
    let mut kept: Vec<Moment> = Vec::new();
    for moment in moments {
        if !kept.iter().any(|(sum, _)| above(sum, &moment.0)) {
            kept.retain(|(sum, _)| !above(&moment.0, sum));
            kept.push(moment);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_points_give_whole_polynomials_or_none() {
        let p = |n: u64| 7 + 3 * n + 2 * n * n;
        let points = [1u64, 4, 9].map(|n| (n as usize, p(n)));
        assert_eq!(Polynomial::through(points), Some(Polynomial { constant: 7, slope: 3, square: 2 }));
        // n rounded up to even numbers is not a polynomial.
        let even = [1u64, 4, 8].map(|n| (n as usize, n.next_multiple_of(2)));
        assert_eq!(Polynomial::through(even), None);
        assert_eq!(Polynomial { constant: 1, slope: 2, square: 3 }.at(10), 321);
    }

    #[test]
    fn moments_that_are_never_highest_are_dropped() {
        let sum = |constant, slope, exact| Size { polynomial: Polynomial { constant, slope, square: 0 }, exact };
        let line = |constant, slope| sum(constant, slope, true);
        let kept = undominated(vec![(line(5, 5), 0), (line(4, 5), 1), (line(0, 9), 2), (line(6, 5), 3)]);
        assert_eq!(kept, [(line(0, 9), 2), (line(6, 5), 3)]);
        // An upper bound hides nothing.
        let kept = undominated(vec![(sum(9, 9, false), 0), (line(4, 5), 1)]);
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn single_sizes_join_the_formula_that_gives_them() {
        let piece = |from, to, constant, slope| Piece {
            from,
            to,
            constant,
            slope,
            square: 0,
            phase: "backward".into(),
            op: "mm".into(),
            scope: "fc".into(),
        };
        let pieces = vec![
            piece(1, 1, 13, 0),
            piece(2, 9, 10, 3),
            piece(10, 10, 40, 0),
            piece(11, 20, 10, 3),
            piece(21, 21, 99, 0),
        ];
        assert_eq!(joined(pieces), [piece(1, 20, 10, 3), piece(21, 21, 99, 0)]);
    }
}
