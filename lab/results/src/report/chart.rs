//! Charts that need no script: series of points, with the axis in binary units and names at the ends of the lines.

use std::fmt::Write;

use lab_base::section::{Chart, Series, Shape};

use super::text::{escaped, grouped};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 38.0;
/// Points of a series that are drawn; of more, each stretch keeps its highest and its lowest.
const MAX_POINTS: usize = 1000;

/// From values to places.
struct Scale {
    x: (f64, f64),
    top: f64,
}

impl Scale {
    fn x(&self, x: f64) -> f64 {
        let (low, high) = self.x;
        LEFT + (x - low) / (high - low).max(f64::MIN_POSITIVE) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - y / self.top * (HEIGHT - TOP - BOTTOM)
    }
}

/// A chart as a figure of the page.
pub(super) struct Drawn<'a>(pub(super) &'a Chart);

impl Drawn<'_> {
    fn scale(&self) -> Scale {
        let (low, high) = self.0.ends().unwrap_or((-0.5, 0.5));
        let highest = self.0.finite().map(|(_, y)| y).fold(0.0, f64::max);
        let top = highest.max(self.0.limit.as_ref().map_or(0.0, |(_, limit)| *limit));
        Scale { x: (low, high), top: if top > 0.0 { top * 1.04 } else { 1.0 } }
    }

    /// Writes the figure. A chart without a point is nothing.
    pub(super) fn draw(&self, out: &mut String) {
        if self.0.finite().next().is_none() {
            return;
        }
        let scale = self.scale();
        let title = escaped(&self.0.title);
        let _ = writeln!(
            out,
            "<figure class=\"chart\">\n<figcaption>{title}</figcaption>\n\
             <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}: {}\">",
            escaped(&self.in_words())
        );
        self.axes(out, &scale);
        for series in &self.0.series {
            self.series(out, series, &scale);
        }
        self.names(out, &scale);
        out.push_str("</svg>\n</div>\n</figure>\n");
    }

    /// What the lines do, for those who do not see them.
    fn in_words(&self) -> String {
        let ends = |series: &Series| {
            let highest = series.points.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max);
            let last = series.points.last().map_or(0.0, |(_, y)| *y);
            format!("{} at most {}, at the end {}", series.name, self.0.value(highest), self.0.value(last))
        };
        self.0.series.iter().filter(|series| !series.points.is_empty()).map(ends).collect::<Vec<_>>().join("; ")
    }

    fn axes(&self, out: &mut String, scale: &Scale) {
        for tick in ticks(scale.top, self.0.bytes) {
            let y = scale.y(tick);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                self.0.value(tick)
            );
        }
        if let Some((name, limit)) = &self.0.limit {
            let y = scale.y(*limit);
            let _ = writeln!(
                out,
                "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT + 6.0,
                y + 14.0,
                escaped(name)
            );
        }
        let (base, mut end) = (HEIGHT - BOTTOM, f64::NEG_INFINITY);
        for x in self.marks(scale) {
            let text = self.0.label(x);
            let half = text.chars().count() as f64 * 3.4;
            let place = scale.x(x);
            if place - half < end + 10.0 {
                continue;
            }
            end = place + half;
            let _ = writeln!(
                out,
                "<line class=\"mark\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{base}\" y2=\"{}\"/>\
                 <text class=\"tick\" x=\"{place:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                base + 4.0,
                base + 17.0,
                escaped(&text)
            );
        }
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{base}\" y2=\"{base}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            WIDTH - RIGHT,
            base + 33.0,
            escaped(&self.0.x)
        );
    }

    /// Places along the axis that may have a name: those of the points where they are few, else round ones.
    fn marks(&self, scale: &Scale) -> Vec<f64> {
        let mut at: Vec<f64> = self.0.finite().map(|(x, _)| x).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        if at.len() <= 12 || !self.0.labels.is_empty() {
            return at;
        }
        let (low, high) = scale.x;
        let step = nice((high - low) / 6.0);
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        (first..=last).map(|k| k as f64 * step).collect()
    }

    fn series(&self, out: &mut String, series: &Series, scale: &Scale) {
        let points = thinned(&series.points);
        let color = series.color;
        if series.shape != Shape::Dots {
            let mut path = String::new();
            for (i, (x, y)) in points.iter().enumerate() {
                let (x, y) = (scale.x(*x), scale.y(*y));
                let _ = match (i, series.shape) {
                    (0, _) => write!(path, "M{x:.1} {y:.1}"),
                    (_, Shape::Steps | Shape::Area) => write!(path, "H{x:.1}V{y:.1}"),
                    _ => write!(path, "L{x:.1} {y:.1}"),
                };
            }
            let dashed = if series.shape == Shape::Predicted { " predicted" } else { "" };
            let _ = writeln!(out, "<path class=\"line s{color}{dashed}\" d=\"{path}\"/>");
        }
        if series.shape == Shape::Dots || (series.shape == Shape::Line && points.len() <= 40) {
            for (x, y) in &points {
                let at = self.0.label(*x);
                let at = if self.0.labels.is_empty() { format!("{} {at}", self.0.x) } else { at };
                let exact =
                    if self.0.bytes { format!(" ({} bytes)", grouped(y.max(0.0) as u64)) } else { String::new() };
                let title = format!("{}: {}{exact} at {at}", series.name, self.0.value(*y));
                let _ = writeln!(
                    out,
                    "<circle class=\"dot s{color}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
                    scale.x(*x),
                    scale.y(*y),
                    escaped(&title)
                );
            }
        }
    }

    /// Each series' name beside its end, none over another.
    fn names(&self, out: &mut String, scale: &Scale) {
        let mut ends: Vec<(f64, &Series)> = self
            .0
            .series
            .iter()
            .filter(|series| !series.name.is_empty())
            .filter_map(|series| series.points.last().map(|(_, y)| (scale.y(*y), series)))
            .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = TOP;
        let lowest = HEIGHT - BOTTOM - 4.0 - 15.0 * (ends.len() as f64 - 1.0);
        for (i, (y, series)) in ends.iter().enumerate() {
            let place = y.max(free).min(lowest.max(TOP) + 15.0 * i as f64);
            free = place + 15.0;
            let end = series.points.last().map_or(0.0, |(x, _)| scale.x(*x));
            let name: String = series.name.chars().take(22).collect();
            let _ = writeln!(
                out,
                "<path class=\"lead s{}\" d=\"M{:.1} {y:.1}L{:.1} {place:.1}\"/>\
                 <text class=\"name t{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                series.color,
                end + 4.0,
                WIDTH - RIGHT + 8.0,
                series.color,
                WIDTH - RIGHT + 11.0,
                place + 4.0,
                escaped(&name)
            );
        }
    }
}

/// Of many points, the highest and the lowest of each stretch.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    if points.len() <= MAX_POINTS {
        return points;
    }
    let mut kept = Vec::new();
    for stretch in points.chunks(points.len().div_ceil(MAX_POINTS / 2)) {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let both = [stretch.iter().min_by(by_height), stretch.iter().max_by(by_height)];
        let mut both: Vec<(f64, f64)> = both.into_iter().flatten().copied().collect();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both.dedup();
        kept.extend(both);
    }
    kept
}

/// Round values from 0 to the top: of bytes, powers of two and their multiples.
fn ticks(top: f64, bytes: bool) -> Vec<f64> {
    let step = if bytes { (top / 6.0).max(1.0).log2().ceil().exp2() } else { nice(top / 5.0) };
    (0..=16).map(|k| f64::from(k) * step).take_while(|tick| *tick <= top).collect()
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|nice| *nice >= step).unwrap_or(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let series = Series { name: "a<b".into(), points, color: 0, shape: Shape::Dots };
        Chart {
            title: "T".into(),
            x: "batch".into(),
            labels: Vec::new(),
            series: vec![series],
            bytes: true,
            limit: None,
        }
    }

    #[test]
    fn points_are_drawn_inside_with_their_exact_numbers() {
        let mut out = String::new();
        Drawn(&chart(vec![(1.0, 1024.0), (2.0, 2048.0)])).draw(&mut out);
        assert!(out.contains("a&lt;b: 2 KiB (2\u{202f}048 bytes) at batch 2"), "{out}");
        assert!(out.contains("<text class=\"tick\" x=\"64.0\"") && out.contains(">512 B</text>"), "{out}");
        assert!(!out.contains("a<b") && !out.contains("NaN") && !out.contains("inf"), "{out}");
    }

    #[test]
    fn one_point_or_odd_ones_do_no_harm() {
        let mut out = String::new();
        Drawn(&chart(vec![(3.0, 0.0)])).draw(&mut out);
        Drawn(&chart(vec![(f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, 5.0)])).draw(&mut out);
        assert!(!out.contains("NaN") && !out.contains("inf\""), "{out}");
        let mut nothing = String::new();
        Drawn(&chart(Vec::new())).draw(&mut nothing);
        assert_eq!(nothing, "");
    }

    #[test]
    fn of_many_points_the_highest_stays() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        points[77_777].1 = 9.0;
        let kept = thinned(&points);
        assert!(kept.len() <= MAX_POINTS && kept.contains(&(77_777.0, 9.0)));
    }
}
