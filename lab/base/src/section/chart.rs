//! Curves and bars, as data.

use super::Cell;
use crate::figures::{number, short};

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Area down to zero; each value holds until the next point.
    Area,
    /// Points joined by lines.
    Line,
    /// Steps: each value holds until the next point.
    Steps,
    /// Single points: measured values.
    Dots,
    /// Points joined by a dashed line: predicted values.
    Predicted,
}

/// A series of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the series.
    pub name: String,
    /// Points: position along the axis, and value.
    pub points: Vec<(f64, f64)>,
    /// Index into the page's colours.
    pub color: usize,
    /// How the points are drawn.
    pub shape: Shape,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// Name of the horizontal axis.
    pub x: String,
    /// Names of the points 0, 1, …; if empty, the axis has numbers.
    pub labels: Vec<String>,
    /// The curves; the first lies on top.
    pub series: Vec<Series>,
    /// Whether values are bytes.
    pub bytes: bool,
    /// A level that must not be exceeded, with its name.
    pub limit: Option<(String, f64)>,
}

impl Chart {
    /// Returns every point whose coordinates are finite.
    pub fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        let all = self.series.iter().flat_map(|series| series.points.iter().copied());
        all.filter(|(x, y)| x.is_finite() && y.is_finite())
    }

    /// Ends of the horizontal axis; a single point lies in the middle. `None` if there is no point.
    pub fn ends(&self) -> Option<(f64, f64)> {
        let low = self.finite().map(|(x, _)| x).fold(f64::INFINITY, f64::min);
        let high = self.finite().map(|(x, _)| x).fold(f64::NEG_INFINITY, f64::max);
        match (low, high) {
            (low, high) if low < high => Some((low, high)),
            (low, high) if low == high => Some((low - 0.5, high + 0.5)),
            _ => None,
        }
    }

    /// Formats a value.
    pub fn value(&self, value: f64) -> String {
        if self.bytes { short(value.max(0.0) as u64) } else { number(value) }
    }

    /// Formats a position along the axis.
    pub fn label(&self, x: f64) -> String {
        let figure = || if x.fract() == 0.0 && x.abs() < 1e15 { format!("{x:.0}") } else { number(x) };
        self.labels.get(x as usize).cloned().unwrap_or_else(figure)
    }
}

/// A bar for each of several things, as long as its share of the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title.
    pub title: String,
    /// Name and value of each bar.
    pub rows: Vec<(String, Cell)>,
}

impl Bars {
    /// Each bar's share of the longest, from 0 to 1.
    pub fn shares(&self) -> impl Iterator<Item = f64> {
        let most = self.rows.iter().map(|(_, cell)| cell.height()).fold(0.0, f64::max);
        self.rows.iter().map(move |(_, cell)| if most > 0.0 { cell.height() / most } else { 0.0 })
    }
}
